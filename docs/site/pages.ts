import { readFileSync } from 'node:fs'
import { posix } from 'node:path'
import { fileURLToPath } from 'node:url'

/** Pages of the repository that are on the site, and their links there. */

const root = fileURLToPath(new URL('../..', import.meta.url))

/** A heading of the list of pages, with its pages. */
export interface Group {
  readonly text: string
  readonly items: readonly { readonly text: string; readonly link: string }[]
}

/** Returns the path in the site of a page of the repository: pages of docs/ without the folder, and a README as its folder. */
export const sitePath = (page: string): string =>
  page === 'README.md'
    ? 'repository.md'
    : page.replace(/^docs\/(site\/)?/, '').replace(/(^|\/)README\.md$/, '$1index.md')

/** Returns the anchor of a heading, as GitHub makes it. */
export const anchorOf = (title: string): string =>
  title
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-')

/** Returns the target of a link in a page, from the root of the repository, with its anchor. */
const target = (page: string, link: string): readonly [path: string, anchor: string] => {
  const [, path = '', anchor = ''] = /^([^#]*)(#.*)?$/.exec(link) ?? []
  return [path === '' ? page : posix.join(posix.dirname(page), path), anchor]
}

/** Returns the address in the site of a link target in `page`. Undefined: the target is not a page of the site. */
export function siteLink(page: string, link: string, isPage: (path: string) => boolean): string | undefined {
  const [path, anchor] = target(page, link)
  if (!isPage(path)) return undefined
  return `/${sitePath(path)
    .replace(/\.md$/, '')
    .replace(/(^|\/)index$/, '$1')}${anchor}`
}

/** Returns the groups of docs/README.md, which lists the pages in reading order. */
export function listedPages(): readonly Group[] {
  const page = 'docs/README.md'
  const [, ...groups] = readFileSync(`${root}${page}`, 'utf8').split(/^## /m)
  return groups.map((group) => ({
    text: group.slice(0, group.indexOf('\n')),
    items: [...group.matchAll(/^- \[(.+?)\]\((.+?)\)/gm)].map(([, text, link]) => ({
      text: text!,
      link: siteLink(page, link!, () => true)!,
    })),
  }))
}
