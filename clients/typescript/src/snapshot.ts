import { ParseError } from "./errors.js";
import { type Http, notJson } from "./http.js";
import type { CallOptions } from "./types.js";

/** Elements of the array `field` of an answer that is read as it comes: one element is in memory, never the answer. */
export async function* elements<T>(
  http: Http,
  path: string,
  query: object | undefined,
  field: string,
  options: CallOptions | undefined,
): AsyncGenerator<T, void, undefined> {
  const { response, chunks } = await http.open({ method: "GET", path, query }, options);
  const what = `GET ${http.url(path)}`;
  const splitter = new Splitter(field);
  try {
    if (!response.headers.get("content-type")?.includes("json")) throw notJson(response, what);
    for await (const chunk of chunks) {
      for (const text of splitter.push(chunk)) yield parsed<T>(text, what);
    }
    if (!splitter.isComplete) throw new ParseError(`${what}: the answer ends before its end`);
  } finally {
    await chunks.return();
  }
}

function parsed<T>(text: string, what: string): T {
  try {
    return JSON.parse(text) as T;
  } catch (cause) {
    throw new ParseError(`${what}: an element is not JSON`, { cause });
  }
}

/** Cuts the text of `{"…": …, "field": [{…}, {…}]}` into the texts of the objects in the array. */
export class Splitter {
  /** The outermost object has ended. */
  isComplete = false;
  readonly #field: RegExp;
  #depth = 0;
  #isWanted = false;
  #inString = false;
  /** The chunk before ended in a backslash. */
  #isEscaped = false;
  /** Parts of the element, or of the text before the array, that earlier chunks held. */
  #parts: string[] = [];

  constructor(field: string) {
    this.#field = new RegExp(`"${field}"\\s*:\\s*$`);
  }

  *push(chunk: string): Generator<string, void, undefined> {
    let from = 0;
    let at = this.#isEscaped ? 1 : 0;
    this.#isEscaped = false;
    for (;;) {
      const next = find(chunk, at, this.#inString);
      if (next < 0) break;
      at = next + 1;
      const char = chunk[next];
      if (char === '"') {
        this.#inString = !this.#inString;
      } else if (char === "\\") {
        this.#isEscaped = at === chunk.length;
        at += 1;
      } else if (char === "{" || char === "[") {
        if (this.#depth === 1) {
          this.#isWanted = char === "[" && this.#field.test(this.#take(chunk.slice(from, next)));
          from = at;
        } else if (this.#depth === 2) {
          from = next;
          this.#parts = [];
        }
        this.#depth += 1;
      } else {
        this.#depth -= 1;
        if (this.#depth === 2 && this.#isWanted) yield this.#take(chunk.slice(from, at));
        if (this.#depth <= 2) {
          from = at;
          this.#parts = [];
        }
        this.isComplete ||= this.#depth === 0;
      }
    }
    // Between elements of the array, and outside it after the array, nothing is worth keeping.
    if (this.#depth !== 2) this.#parts.push(chunk.slice(from));
  }

  #take(last: string): string {
    const text = this.#parts.length ? this.#parts.join("") + last : last;
    this.#parts = [];
    return text;
  }
}

const STRUCTURE = /["{}[\]]/g;
const IN_STRING = /["\\]/g;

/** Returns the position of the next character of the structure, or -1. */
function find(text: string, from: number, inString: boolean): number {
  const pattern = inString ? IN_STRING : STRUCTURE;
  pattern.lastIndex = from;
  return pattern.exec(text)?.index ?? -1;
}
