import { blocksOf, textOf } from './pages.ts'

/** A file that a page shows. */
export interface Sample {
  /** Path in the project of the reader. */
  readonly name: string
  readonly code: string
  /** Page and line. */
  readonly place: string
}

/** Languages of files. */
const FILES = ['ts', 'tsx', 'js', 'json']
const PATH = /^[\w@./-]+\.(?:tsx?|m?js|json)$/

/**
 * Returns the files that a page shows. The first line of a block, a comment, names its file, or the last path in the paragraph above. Throws an error for a file without a
 * name, and for code that only declares what the reader does not have. JavaScript without imports and exports is no file.
 */
export function samplesOf(page: string): Sample[] {
  const lines = textOf(page).split('\n')
  return blocksOf(page).flatMap(({ language, line, code }) => {
    if (!FILES.includes(language)) return []
    if (language.startsWith('js') && !/^(?:import|export|\{) ?/m.test(code)) return []
    const place = `${page}:${line}`
    const [, comment] = /^\/\/ (.*)\n/.exec(code) ?? []
    const above = [...paragraphAbove(lines, line - 1).matchAll(/`([^`]+)`/g)].map(([, text]) => text!)
    const name = [...above, comment ?? ''].findLast((text) => PATH.test(text))
    if (name === undefined) throw new Error(`${place} is a file without a name above it`)
    const declared = name.endsWith('.d.ts') ? undefined : /^declare (?!module|global).*$/m.exec(code)
    if (declared) throw new Error(`${place} does not show what it needs: ${declared[0]}`)
    return [{ name, code, place }]
  })
}

/** Returns the packages that the commands of a page install. */
export const installed = (page: string): string[] =>
  blocksOf(page, 'sh').flatMap(({ code }) =>
    [...code.matchAll(/^npm install (.*)$/gm)].flatMap(([, words]) =>
      words!.split(' ').filter((word) => !word.startsWith('-')),
    ),
  )

/** Returns the text above line `index` up to the next blank line, also over blank lines directly above. */
function paragraphAbove(lines: readonly string[], index: number): string {
  let end = index
  while (end > 0 && lines[end - 1] === '') end--
  let begin = end
  while (begin > 0 && lines[begin - 1] !== '') begin--
  return lines.slice(begin, end).join(' ')
}
