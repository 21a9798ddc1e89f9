/** Settings of a person for this browser; nothing of it leaves the browser. */

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
const FALLBACK: Stored = { theme: 'system', language: null, zone: null, keys: true };

function read(): Stored {
  try {
    return { ...FALLBACK, ...(JSON.parse(localStorage.getItem(PLACE) ?? '{}') as Partial<Stored>) };
  } catch {
    return { ...FALLBACK };
  }
}

const stored = $state(read());

function browserLanguage(): Language {
  return navigator.language.startsWith('de') ? 'de' : 'en';
}

export const settings = {
  get theme(): Theme { return stored.theme; },
  get language(): Language { return stored.language ?? browserLanguage(); },
  get languageChosen(): Language | null { return stored.language; },
  get zone(): string { return stored.zone ?? Intl.DateTimeFormat().resolvedOptions().timeZone; },
  get zoneChosen(): string | null { return stored.zone; },
  get keys(): boolean { return stored.keys; },
  set(change: Partial<Stored>): void {
    Object.assign(stored, change);
    localStorage.setItem(PLACE, JSON.stringify(stored));
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
  if (stored.theme === 'system') delete root.dataset['theme'];
  else root.dataset['theme'] = stored.theme;
  shown.light = stored.theme === 'light' || (stored.theme === 'system' && systemLight.matches);
}

systemLight.addEventListener('change', applyTheme);
