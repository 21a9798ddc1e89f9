/** Tells whether the pointer or the focus is in an element: what is read there is not to move under the reader. */
export function held(tell: (held: boolean) => void): (element: HTMLElement) => () => void {
  return (element) => {
    const abort = new AbortController();
    const on = { pointer: false, focus: false };
    for (const [kind, of, is] of [['pointerenter', 'pointer', true], ['pointerleave', 'pointer', false], ['focusin', 'focus', true], ['focusout', 'focus', false]] as const)
      element.addEventListener(kind, () => {
        on[of] = is;
        tell(on.pointer || on.focus);
      }, { signal: abort.signal });
    return () => abort.abort();
  };
}
