import type { BrowserContext, Page } from 'playwright-core'
import * as v from 'valibot'
import { defineRoom } from '../../dataplane/rooms/definition.ts'
import type { Json } from '../../shared/json.ts'

/** The admin page of a node in a tab, and what must not happen there. */
interface AdminPage {
  readonly page: Page
  /** Script errors, dialogs, and refusals of the content security policy. */
  readonly complaints: readonly string[]
  /** The origins that anything was asked of. */
  readonly origins: ReadonlySet<string>
}

/** Opens `/admin` of a node, by a link with the token when one is given. `room`: the name of a room to open there. */
export async function openAdmin(
  context: BrowserContext,
  adminUrl: string,
  { token, room }: { token?: string; room?: string } = {},
): Promise<AdminPage> {
  const page = await context.newPage()
  // Playwright's own 30 s are little on a busy machine.
  page.setDefaultTimeout(120_000)
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
  await page.goto(`${adminUrl}/admin${token === undefined ? '' : `#token=${encodeURIComponent(token)}`}`)
  if (token !== undefined) await page.getByRole('tab', { name: 'Rooms' }).waitFor()
  if (room !== undefined) await page.goto(`${adminUrl}/admin#room=${encodeURIComponent(room)}`)
  return { page, complaints, origins }
}

/** Answers the question for the token; resolves when the node is shown. */
export async function unlock(page: Page, token: string): Promise<void> {
  await page.getByLabel('Token').fill(token)
  await page.getByRole('button', { name: 'Show the node' }).click()
  await page.getByRole('tab', { name: 'Rooms' }).waitFor()
}

/** Makes the page ask the node now. Its rests between two rounds are five times as long as a round, which is long on a busy machine. */
export const ask = (page: Page): Promise<void> =>
  page.evaluate(() => void document.dispatchEvent(new Event('visibilitychange')))

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

const json = v.custom<Json>(() => true)

/** A room whose state and events are whatever its players say. */
export const board = defineRoom({
  type: 'board',
  messages: {
    put: { data: v.object({ key: v.string(), value: json }) },
    shout: { data: v.object({ name: v.string(), data: json }) },
    /** Makes the state about a megabyte large. */
    fill: { data: v.null() },
  },
  sync: { rate: 0 },
  durability: 'snapshot',
  create: (): Record<string, Json> => ({ turn: 0, players: { ada: { hp: 9, at: [1, 2] } } }),
  onMessage(state, input, ctx) {
    if (input.type === 'put') state[input.data.key] = input.data.value as never
    else if (input.type === 'shout') ctx.emit(input.data.name, input.data.data)
    else {
      state.numbers = Array.from({ length: 50_000 }, (_, n) => n)
      for (let part = 0; part < 14; part++) state[`part${part}`] = 'x'.repeat(50_000)
    }
  },
})

/** A text on a page that is hard to read. */
interface FaintText {
  readonly text: string
  readonly ratio: number
}

/**
 * The visible texts of a page whose contrast is below `least`, by the formula of WCAG 2.2 (contrast ratio, relative luminance); what is
 * disabled is left out, as there. Backgrounds are plain colours.
 */
export const faintTexts = (page: Page, least = 4.5): Promise<FaintText[]> =>
  page.evaluate((least) => {
    const channels = (color: string): number[] => (color.match(/[\d.]+/g) ?? []).map(Number)
    const luminance = ([r = 0, g = 0, b = 0]: number[]): number => {
      const [lr, lg, lb] = [r, g, b].map((channel) => {
        const share = channel / 255
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
      }) as [number, number, number]
      return 0.2126 * lr + 0.7152 * lg + 0.0722 * lb
    }
    const backgroundOf = (element: Element | null): number[] => {
      for (let at = element; at; at = at.parentElement) {
        const color = channels(getComputedStyle(at).backgroundColor)
        if ((color[3] ?? 1) === 1) return color
      }
      return [255, 255, 255]
    }
    const faint: FaintText[] = []
    const check = (element: Element, text: string, color: string): void => {
      const [a, b] = [luminance(channels(color)), luminance(backgroundOf(element))]
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
      if (ratio < least) faint.push({ text, ratio: Number(ratio.toFixed(2)) })
    }
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      const element = text.parentElement
      const words = text.textContent?.trim()
      if (!element || !words || element.closest('script, style, :disabled')) continue
      if (element.checkVisibility({ visibilityProperty: true }))
        check(element, words, getComputedStyle(element).color)
    }
    for (const input of document.querySelectorAll('input[placeholder]'))
      if (input.checkVisibility())
        check(input, `placeholder of ${input.id}`, getComputedStyle(input, '::placeholder').color)
    return faint
  }, least)
