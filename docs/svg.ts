/** Parts of the pictures of docs/: text, boxes and the frame, in light and dark colours. */

/** Sizes in the drawing. At 343 px, the width of a page on a small phone, the text has 12 px. */
export const [WIDTH, SHOWN, FONT] = [400, 480, 14]
/** Width of a character, on average. */
export const CHARACTER = FONT * 0.56

export const escaped = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;')

/** Returns text around a point, or from it with the kind `left`. */
export const textAt = (x: number, y: number, text: string, kind = 'text'): string =>
  `<text class="${kind}" x="${x.toFixed(0)}" y="${y.toFixed(0)}">${escaped(text)}</text>`

/** Returns a box with lines of text in its middle. */
export function boxAt(
  x: number,
  y: number,
  {
    width,
    lines,
    kind = 'note',
  }: { readonly width: number; readonly lines: readonly string[]; readonly kind?: string },
): string {
  const height = lines.length * LINE + 10
  const texts = lines.map((line, at) =>
    textAt(x + width / 2, y + (at + 1) * LINE, line, at === 0 ? 'title' : 'text'),
  )
  return [
    `<rect class="${kind}" x="${x}" y="${y}" width="${width}" height="${height}" rx="5"/>`,
    ...texts,
  ].join('\n')
}

/** Height of a line of text. */
export const LINE = 18

/** Returns an arrow, straight down or to the right. */
export function arrowTo(from: readonly [number, number], to: readonly [number, number]): string {
  const [x, y] = to
  const head = from[0] === x ? 'm-4 -7l4 7l4 -7' : 'm-7 -4l7 4l-7 4'
  return `<path class="arrow" d="M${from[0]} ${from[1]}L${x} ${y}${head}"/>`
}

/** Returns the picture. `label` is for readers who do not see it. */
export const frame = (label: string, height: number, drawn: readonly string[]): string =>
  `<svg xmlns="http://www.w3.org/2000/svg" width="${SHOWN}" height="${Math.round((height * SHOWN) / WIDTH)}" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${escaped(label)}" font-family="system-ui, sans-serif" font-size="${FONT}">
<style>
text { fill: #1f2328; text-anchor: middle; paint-order: stroke; stroke: #fff; stroke-width: 4 } .left { text-anchor: start } .title { font-weight: 600 } .gone { opacity: .55 } .lane { stroke: #afb8c1; stroke-dasharray: 3 3 }
.arrow { fill: none; stroke: #2f5bd8; stroke-width: 1.5 } .note { fill: #fff; stroke: #8250df } .crash { fill: #fff; stroke: #b3261e; stroke-width: 2 } circle.note { fill: #8250df } circle.crash { fill: #b3261e }
@media (prefers-color-scheme: dark) { text { fill: #f0f6fc; stroke: #0d1117 } .lane { stroke: #59636e } .arrow { stroke: #79a1ff } .note { fill: #0d1117; stroke: #c297ff } .crash { fill: #0d1117; stroke: #ff7b72 } circle.note { fill: #c297ff } circle.crash { fill: #ff7b72 } }
</style>
${drawn.join('\n')}
</svg>
`
