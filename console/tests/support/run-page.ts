/** Parts of the page of a run. */
import { expect, type Locator, type Page } from '@playwright/test';

export const plot = (page: Page): Locator => page.locator('.plot');
export const player = (page: Page): Locator => page.getByRole('region', { name: 'Picture' });
export const why = (page: Page): Locator => page.getByRole('region', { name: 'Why this frame' });
export const slider = (page: Page): Locator => page.getByRole('slider', { name: 'Head' });

/** The timeline has been painted. */
export const painted = (page: Page, timeout?: number): Promise<void> => expect(page.getByTestId('timeline')).toHaveAttribute('data-full', /[1-9]/, { timeout });

export async function open(page: Page, address: string): Promise<void> {
  await page.goto(address);
  await painted(page);
}

/** Chooses an act of the page's menu. */
export async function choose(page: Page, act: string): Promise<void> {
  await page.getByRole('button', { name: 'More' }).click();
  await page.getByRole('menuitem', { name: act }).click();
}
