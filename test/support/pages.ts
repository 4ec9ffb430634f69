import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** The folder of the repository. */
export const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** A block between fences in a page. */
export interface Block {
  /** The page, such as `docs/operations.md`, and the line the block begins at. */
  readonly page: string
  readonly line: number
  /** The nearest heading above it, without its `#`. */
  readonly heading: string
  /** The word behind the opening fence; `-`: there is none. */
  readonly language: string
  readonly code: string
}

/** Folders that are made, or of others. */
const NOT_OURS = /^(node_modules|dist|coverage|loadtest-report|api|\..*)$/

/** Every Markdown page of the repository, in order. */
export function pages(folder = ''): string[] {
  const entries = readdirSync(join(ROOT, folder), { withFileTypes: true })
  const of = entries.flatMap((entry) => {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) return NOT_OURS.test(entry.name) ? [] : pages(path)
    return entry.name.endsWith('.md') ? [path] : []
  })
  return of.sort()
}

export const textOf = (page: string): string => readFileSync(join(ROOT, page), 'utf8')

/** Where the links of a page lead, other than to another site: a path relative to the page, maybe empty, and maybe `#` and an anchor. */
export const linksOf = (text: string): string[] =>
  [...text.replaceAll(/^```.*?^```/gms, '').matchAll(/\]\((?!https?:)([^)]+)\)/g)].map(([, link]) => link!)

/** The blocks of a page, in order; only those in `language`, and below `heading`, if these are given. */
export function blocksOf(page: string, language?: string, heading?: string): Block[] {
  const blocks: Block[] = []
  let lastHeading = ''
  let open: { line: number; language: string; code: string[] } | undefined
  for (const [index, text] of textOf(page).split('\n').entries()) {
    const fence = /^```(.*)$/.exec(text)
    if (open && fence) {
      blocks.push({ ...open, page, heading: lastHeading, code: `${open.code.join('\n')}\n` })
      open = undefined
    } else if (open) open.code.push(text)
    else if (fence) open = { line: index + 1, language: fence[1] || '-', code: [] }
    else lastHeading = /^#+ (.*)$/.exec(text)?.[1] ?? lastHeading
  }
  return blocks.filter(
    (block) =>
      (language === undefined || block.language === language) &&
      (heading === undefined || block.heading === heading),
  )
}

/** The code of the blocks of a page. */
export const codeOf = (page: string, language: string, heading?: string): string[] =>
  blocksOf(page, language, heading).map(({ code }) => code)

/** What stands in backticks in the running text and the tables of a page, with the lines that it is broken at joined. */
export function inlineCode(page: string): string[] {
  const prose = textOf(page).replaceAll(/^```.*?^```/gms, '')
  return [...prose.matchAll(/`([^`]+)`/g)].map(([, code]) => code!.replaceAll(/\s*\n\s*/g, ' '))
}
