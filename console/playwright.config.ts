import { defineConfig } from '@playwright/test';
import { CHROMIUM } from './tests/support/chromium';

export default defineConfig({
  testDir: 'tests/browser',
  fullyParallel: false,
  // One that passes then is listed as flaky, and is to be mended.
  retries: 1,
  workers: 2,
  timeout: 60_000,
  expect: { timeout: 10_000 },
  reporter: 'list',
  use: {
    viewport: { width: 1440, height: 900 },
    locale: 'en-GB',
    timezoneId: 'Europe/Berlin',
    launchOptions: CHROMIUM,
  },
});
