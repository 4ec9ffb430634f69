import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** The folder of the repository. */
export const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** A code block of a page. */
export interface Block {
  /** Path of the page, such as `docs/operations.md`, and line of the block. */
  readonly page: string
  readonly line: number
  /** The nearest heading above it, without its `#`. */
  readonly heading: string
  /** Language of the block. `-`: none. */
  readonly language: string
  readonly code: string
}

/** Generated folders, and folders of packages. */
const NOT_OURS = /^(node_modules|dist|coverage|loadtest-report|api|\..*)$/

/** Returns the paths of all Markdown pages of the repository, sorted. */
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

/** Returns the targets of a page's links, without links to other sites: a relative path, which may be empty, and optionally `#` with an anchor. */
export const linksOf = (text: string): string[] =>
  [...text.replaceAll(/^```.*?^```/gms, '').matchAll(/\]\((?!https?:)([^)]+)\)/g)].map(([, link]) => link!)

/** Returns the blocks of a page, in order. `language` and `heading`: only such blocks, and only below this heading. */
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

/** As `blocksOf`, but returns only the code. */
export const codeOf = (page: string, language: string, heading?: string): string[] =>
  blocksOf(page, language, heading).map(({ code }) => code)

/** Returns the inline code of a page, with line breaks replaced by spaces. */
export function inlineCode(page: string): string[] {
  const prose = textOf(page).replaceAll(/^```.*?^```/gms, '')
  return [...prose.matchAll(/`([^`]+)`/g)].map(([, code]) => code!.replaceAll(/\s*\n\s*/g, ' '))
}
