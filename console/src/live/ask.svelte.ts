/** Questions to a model about stills of a run; what was asked and answered is kept in this tab, and nowhere else. */
import { client, reasonOf, type Model } from '../api/client';

export interface About { run: string; stills: { sha: string; pts: number }[] }

export interface Answer {
  about: About;
  model: string;
  question: string;
  /** `null` while it is awaited. */
  text: string | null;
  failed: boolean;
  tokens: number;
  ms: number;
}

/** The most stills that the API takes with a question. */
export const STILLS_MAX = 8;
const ANSWERS_MAX = 50;

class Asking {
  about = $state.raw<About | null>(null);
  answers = $state<Answer[]>([]);

  close(): void { this.about = null; }

  /** Forgets what was asked: it was another key's. */
  forget(): void {
    this.close();
    this.answers = [];
  }

  /** Asks `model`; the answer joins `answers`, the newest first. */
  async put(about: About, model: Model['id'], question: string): Promise<void> {
    const at = this.answers.unshift({ about, model, question, text: null, failed: false, tokens: 0, ms: 0 }) - 1;
    if (at >= ANSWERS_MAX) this.answers.length = ANSWERS_MAX;
    const answer = this.answers[0] as Answer;
    try {
      const images = about.stills.slice(0, STILLS_MAX).map(({ sha }) => ({ keyframe: { run_id: about.run, sha256: sha } }));
      const said = await client.infer({ model, prompt: question, images });
      Object.assign(answer, { text: said.output_text, tokens: said.tokens.total_tokens, ms: said.inference_latency_ms });
    } catch (error) {
      Object.assign(answer, { text: reasonOf(error), failed: true });
    }
  }
}

export const asking = new Asking();

/** Opens the panel with stills of a run. */
export function ask(about: About): void {
  asking.about = { ...about, stills: about.stills.slice(0, STILLS_MAX) };
}

/** Stills of a run as the API lists them, to ask about. */
export function aboutHit(run: string, stills: readonly { image_sha256: string; pts_ms: number }[]): About {
  return { run, stills: stills.map(({ image_sha256, pts_ms }) => ({ sha: image_sha256, pts: pts_ms })) };
}
