/** Copies to the clipboard, and says so; a browser allows it on HTTPS and localhost only. */
import { t } from './messages.svelte';
import { say } from './toasts.svelte';

export async function copyText(text: string, said: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    say(said);
  } catch {
    say(t('run.copy_failed'));
  }
}
