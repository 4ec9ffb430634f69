import type { Page } from 'playwright-core'

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
