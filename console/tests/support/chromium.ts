/** The browser of the tests, also with a camera that is drawn. */
const ARGS = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

export const CHROMIUM = { executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ARGS };
export const WITH_CAMERA = { ...CHROMIUM, args: [...ARGS, '--use-fake-device-for-media-stream', '--use-fake-ui-for-media-stream', '--auto-select-desktop-capture-source=Entire screen'] };
