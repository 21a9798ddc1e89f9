/** Words in the language of the settings. Messages are `messages/{en,de}/{shell,run,live}.json`; English is their type. */
import shell from '../../messages/en/shell.json';
import run from '../../messages/en/run.json';
import live from '../../messages/en/live.json';
import { settings, type Language } from './settings.svelte';

/** A text, or one for each plural form of the parameter `n`. `{name}` stands for a parameter. */
type Message = string | Partial<Record<Intl.LDMLPluralRule, string>>;
type Messages = Record<Key, Message>;

const english = { ...shell, ...run, ...live };
export type Key = keyof typeof english;
export type Parameters = Record<string, string | number>;

let catalogs = $state.raw<Partial<Record<Language, Messages>>>({ en: english });
const others: Record<Exclude<Language, 'en'>, () => Promise<{ default: Messages }>> = {
  de: () => import('../../messages/de/index'),
};

/** Loads the words of the language that is set; until then English stands. */
export async function loadLanguage(): Promise<void> {
  const { language } = settings;
  document.documentElement.lang = language;
  if (language === 'en' || catalogs[language]) return;
  catalogs = { ...catalogs, [language]: (await others[language]()).default };
}

function template(key: Key, parameters: Parameters): string {
  const { language } = settings;
  const message = catalogs[language]?.[key] ?? (english[key] as Message);
  if (typeof message === 'string') return message;
  const form = new Intl.PluralRules(language).select(Number(parameters['n'] ?? 0));
  return message[form] ?? message.other ?? '';
}

/** The message `key`; numbers are written as the language has them. */
export function t(key: Key, parameters: Parameters = {}): string {
  return parts(key, parameters).map((part) => part.text).join('');
}

/** The message `key` in pieces, those of a parameter with its name: for a message of which a part looks different. */
export function parts(key: Key, parameters: Parameters = {}): { text: string; name?: string }[] {
  return template(key, parameters).split(/\{(\w+)\}/).flatMap((text, at) => {
    if (at % 2 === 0) return text === '' ? [] : [{ text }];
    const value = parameters[text] ?? '';
    return [{ text: typeof value === 'number' ? number(value) : value, name: text }];
  });
}

const formats = new Map<string, Intl.NumberFormat>();
/** A number as the reader's region writes it; formats are costly to make, and tables ask for thousands. */
export function number(value: number, options: Intl.NumberFormatOptions = {}): string {
  const key = settings.locale + JSON.stringify(options);
  let format = formats.get(key);
  if (!format) formats.set(key, (format = new Intl.NumberFormat(settings.locale, options)));
  return format.format(value);
}
