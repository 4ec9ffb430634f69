import { validate } from 'dockerfile-utils'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { objectionTo, variable } from './support/pages/known-commands.ts'
import { type Block, blocksOf, inlineCode, pages, textOf } from './support/pages/pages.ts'
import { rehearse } from './support/pages/rehearsal.ts'

/**
 * What pages tell people to type names only what is there: scripts, files, variables, services, units. Programs are stood in for; many
 * blocks are run in earnest besides, by test/readme.system.test.ts, test/runbooks.system.test.ts and the tests in deploy/.
 */

const blocks = pages().flatMap((page) => blocksOf(page))
const written = (language: string) => blocks.filter((block) => block.language === language)
const place = ({ page, line, heading }: Block) => `${page}:${line} (under "${heading}")`

/** The variables that a script sets, but for those that are the page's own. */
const assigned = (page: string, script: string): string[] =>
  [...script.matchAll(/^(?:export )?([A-Z][A-Z_]+)=/gm)]
    .map(([, name]) => name!)
    .filter((name) => !textOf(page).includes(`$${name}`))

const PROGRAM = /^([A-Z_]+=\S+ )*(docker|helm|kubectl|sudo|systemctl|journalctl|npm|npx|roomful) [^|]*$/

describe('the pages', () => {
  it.each(written('sh').map((block) => [place(block), block] as const))('%s', async (_, { page, code }) => {
    for (const words of await rehearse(code)) expect(objectionTo(words), words.join(' ')).toBeUndefined()
    for (const name of assigned(page, code)) expect(variable(name)).toBeUndefined()
  })

  it('have commands in their text that would be understood', async () => {
    for (const page of pages()) {
      const found = inlineCode(page).filter((code) => PROGRAM.test(code))
      for (const words of await rehearse(found.map((code) => `${code}\n`).join('')))
        expect.soft(objectionTo(words), `${page}: ${words.join(' ')}`).toBeUndefined()
    }
  })

  it('show Dockerfiles, YAML and JSON that can be read', () => {
    for (const block of written('dockerfile')) {
      expect(validate(block.code), place(block)).toEqual([])
      for (const [, name] of block.code.matchAll(/^ENV ([A-Z_]+)=/gm)) expect(variable(name!)).toBeUndefined()
    }
    for (const block of written('yaml')) expect(parse(block.code), place(block)).toEqual(expect.any(Object))
  })
})
