import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { validate } from 'dockerfile-utils'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { COMMANDS } from '../deploy/cli/arguments.ts'
import { parseRun } from '../loadtest/options.ts'
import { SCENARIOS } from '../loadtest/scenarios/index.ts'
import { variables } from '../shared/config/variables.ts'
import { type Block, blocksOf, inlineCode, pages, ROOT, textOf } from './support/pages/pages.ts'

/**
 * What pages tell people to type names only what is there. Many blocks are run besides, by readme.system.test.ts, runbooks.system.test.ts
 * and the tests in deploy/.
 */

interface Manifest {
  readonly version: string
  readonly scripts: Readonly<Record<string, string>>
}
const manifest: Manifest = JSON.parse(textOf('package.json'))
/** Of the games that `npm create roomful` makes, which guides are about as well. */
const game: Manifest = JSON.parse(textOf('deploy/create/templates/vanilla/package.json'))
const values = parse(textOf('deploy/helm/roomful/values.yaml'))
const known = new Set<string>(variables().map(([name]) => name))
const isVariable = (name: string): boolean => known.has(name.replace(/_FILE$/, ''))
const exists = (path: string): boolean => existsSync(join(ROOT, path))

/** Names in commands, and whether there is such a one. */
const NAMES: readonly (readonly [pattern: RegExp, isThere: (name: string) => boolean])[] = [
  [/\bnpm run ([\w:-]+)/g, (script) => script in manifest.scripts || script in game.scripts],
  [/(?:^|\s)(deploy\/(?!\.env)[\w./-]*\w)/gm, exists],
  [/(?:^|&& |npx )roomful ([a-z]\S*)/gm, (command) => command === 'examples' || command in COMMANDS],
  [/(?:^|\/)roomful:(\S+)/gm, (version) => version === manifest.version],
  [/^((?:client|control|dataplane|docs|examples|loadtest|shared|test)\/[\w./-]+)$/gm, exists],
  [/\s-e ([A-Z][A-Z_]+)=/g, isVariable],
  [/(?:systemctl|journalctl) .*\b(roomful-\w+)@/g, (unit) => exists(`deploy/systemd/${unit}@.service`)],
  [/\s--set (\w[\w.]*)=/g, (path) => path.split('.').reduce((at, name) => at?.[name], values) !== undefined],
  [
    /\bnpm run loadtest -- ([\w -]+)$/gm,
    (words) => parseRun(words.split(' '), SCENARIOS, {}, 2).kind !== 'mistake',
  ],
]

const missingIn = (code: string): string[] =>
  NAMES.flatMap(([pattern, isThere]) =>
    [...code.matchAll(pattern)].filter(([, name]) => !isThere(name!)).map(([text]) => text.trim()),
  )

const blocks = pages().flatMap((page) => blocksOf(page))
const written = (language: string) => blocks.filter((block) => block.language === language)
const place = ({ page, line, heading }: Block) => `${page}:${line} (under "${heading}")`

describe('the pages', () => {
  it('have commands that name what is there, and variables that are read', () => {
    for (const block of written('sh')) {
      const { page, code } = block
      expect.soft(spawnSync('bash', ['-n', '-c', code]).status, place(block)).toBe(0)
      const assigned = [...code.matchAll(/^(?:export )?([A-Z][A-Z_]+)=/gm)].map(([, name]) => name!)
      const own = (name: string): boolean => textOf(page).includes(`$${name}`)
      expect.soft(missingIn(code), place(block)).toEqual([])
      expect
        .soft(
          assigned.filter((name) => !isVariable(name) && !own(name)),
          place(block),
        )
        .toEqual([])
    }
    for (const page of pages()) expect.soft(inlineCode(page).flatMap(missingIn), page).toEqual([])
  })

  it('show Dockerfiles, YAML and JSON that can be read', () => {
    for (const block of written('dockerfile')) {
      expect(validate(block.code), place(block)).toEqual([])
      for (const [, name] of block.code.matchAll(/^ENV ([A-Z_]+)=/gm)) expect(name).toSatisfy(isVariable)
    }
    for (const block of written('yaml')) expect(parse(block.code), place(block)).toEqual(expect.any(Object))
  })
})
