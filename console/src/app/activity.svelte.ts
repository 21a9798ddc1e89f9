/** What the top bar says of the server: how many runs are live, and whether something is wrong with the machine. */

const state = $state({ live: 0, trouble: false });

export const activity = {
  get live(): number { return state.live; },
  get trouble(): boolean { return state.trouble; },
  set(change: Partial<{ live: number; trouble: boolean }>): void { Object.assign(state, change); },
};
