/** Settings of a person for this browser; nothing of it leaves the browser. */
import { keepStored, stored } from './stored';

export type Theme = 'system' | 'light' | 'dark';
export type Language = 'en' | 'de';

interface Stored {
  theme: Theme;
  /** `null`: the browser's. */
  language: Language | null;
  /** An IANA zone; `null`: the browser's. */
  zone: string | null;
  /** Single letters and signs act. */
  keys: boolean;
}

const PLACE = 'sightline.settings';
const own = $state(stored<Stored>(PLACE, { theme: 'system', language: null, zone: null, keys: true }));

/** Asked for once: that takes as long as a format takes to make, and each date that is written asks. */
export const browserZone = Intl.DateTimeFormat().resolvedOptions().timeZone;

function browserLanguage(): Language {
  return navigator.language.startsWith('de') ? 'de' : 'en';
}

export const settings = {
  get theme(): Theme { return own.theme; },
  get language(): Language { return own.language ?? browserLanguage(); },
  /** The language as the browser's own region writes numbers and dates. */
  get locale(): string { return navigator.languages.find((own) => own.split('-')[0] === this.language) ?? this.language; },
  get languageChosen(): Language | null { return own.language; },
  get zone(): string { return own.zone ?? browserZone; },
  get zoneChosen(): string | null { return own.zone; },
  get keys(): boolean { return own.keys; },
  set(change: Partial<Stored>): void {
    Object.assign(own, change);
    keepStored(PLACE, own);
    applyTheme();
  },
};

const systemLight = matchMedia('(prefers-color-scheme: light)');
const shown = $state({ light: false });

/** The theme that is shown now; reading it in an effect repaints a canvas when it changes. */
export function shownTheme(): 'light' | 'dark' {
  return shown.light ? 'light' : 'dark';
}

export function applyTheme(): void {
  const root = document.documentElement;
  if (own.theme === 'system') delete root.dataset['theme'];
  else root.dataset['theme'] = own.theme;
  shown.light = own.theme === 'light' || (own.theme === 'system' && systemLight.matches);
}

systemLight.addEventListener('change', applyTheme);
