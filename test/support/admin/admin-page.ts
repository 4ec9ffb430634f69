import type { Browser, BrowserContextOptions, Page } from 'playwright-core'

/** The admin page of a node in a browser of its own, and what must not happen there. */
interface AdminPage {
  readonly page: Page
  /** Script errors, dialogs, and refusals of the content security policy. */
  readonly complaints: readonly string[]
  /** The origins that anything was asked of. */
  readonly origins: ReadonlySet<string>
}

/** Opens `/admin` of a node, past the question for the token when one is given. `path`: what follows `/admin`. */
export async function openAdmin(
  browser: Browser,
  adminUrl: string,
  { token, path = '', ...options }: BrowserContextOptions & { token?: string; path?: string } = {},
): Promise<AdminPage> {
  const context = await browser.newContext(options)
  const page = await context.newPage()
  const complaints: string[] = []
  const origins = new Set<string>()
  page.on('pageerror', (error) => complaints.push(error.message))
  page.on('console', (message) => {
    if (/security policy|trusted/i.test(message.text())) complaints.push(message.text())
  })
  page.on('dialog', (dialog) => {
    complaints.push(dialog.message())
    dialog.dismiss().catch(() => {})
  })
  page.on('request', (request) => {
    if (!request.url().startsWith('data:')) origins.add(new URL(request.url()).origin)
  })
  await page.goto(`${adminUrl}/admin${path}`)
  if (token !== undefined) await unlock(page, token)
  return { page, complaints, origins }
}

/** Answers the question for the token; resolves when the node is shown. */
export async function unlock(page: Page, token: string): Promise<void> {
  await page.getByLabel('Token').fill(token)
  await page.getByRole('button', { name: 'Show the node' }).click()
  await page.getByRole('tab', { name: 'Rooms' }).waitFor()
}

/** Opens a room of the list, and waits for its state. */
export async function openRoom(page: Page, roomId: string): Promise<void> {
  await page.getByRole('button', { name: roomId, exact: true }).click()
  await page.getByRole('tree').waitFor()
}

/** What has the focus, as a person would name it. */
export const focused = (page: Page): Promise<string> =>
  page.evaluate(() => {
    const element = document.activeElement
    return element?.id || element?.textContent?.trim() || element?.tagName || ''
  })
