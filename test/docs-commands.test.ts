import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { validate } from 'dockerfile-utils'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { objectionTo, variable } from './support/pages/known-commands.ts'
import { type Block, blocksOf, inlineCode, pages, ROOT, textOf } from './support/pages/pages.ts'
import { rehearse } from './support/pages/rehearsal.ts'

/** Every block of code in every page is known here: by the test that runs it, or by what else is done about it. */

/** Its commands are given to stand-ins (this file): they need an engine, a cluster, root, or a long time. */
const REHEARSED = 'rehearsed'
/** It is read by what reads it in earnest (this file): a Dockerfile, YAML. */
const READ = 'read'
/** Nothing to run: a picture of a screen, or pseudo-code whose outcomes a test holds. */
const SHOWN = 'shown'

const README = 'test/readme.test.ts'
const RUNBOOKS = 'test/runbooks.test.ts'

/** Page → the blocks of it in order: heading, language, and the test that runs it or one of the words above. */
const LEDGER: Readonly<Record<string, readonly (readonly [string, string, string])[]>> = {
  'CONTRIBUTING.md': [['Set up', 'sh', REHEARSED]],
  'README.md': [
    ['roomful', 'sh', README],
    ['A room', 'ts', README],
    ['A client', 'ts', README],
    ['The token between them', 'sh', README],
    ['A cluster on your machine', 'sh', REHEARSED],
    ['A cluster on your machine', 'text', SHOWN],
  ],
  'deploy/README.md': [
    ['The image', 'sh', REHEARSED],
    ['The image', 'dockerfile', READ],
    ['Compose', 'sh', REHEARSED],
    ['Compose', 'sh', REHEARSED],
    ['Compose', 'sh', REHEARSED],
    ['Compose', 'sh', REHEARSED],
    ['Compose', 'sh', REHEARSED],
    ['Compose', 'sh', REHEARSED],
    ['Compose', 'sh', 'deploy/compose.test.ts'],
    ['Kubernetes', 'sh', REHEARSED],
    ['systemd', 'sh', REHEARSED],
    ['systemd', 'sh', 'deploy/systemd/units.test.ts'],
    ['systemd', 'sh', REHEARSED],
    ['systemd', 'sh', REHEARSED],
  ],
  'deploy/balancer/README.md': [['TLS', 'sh', 'test/balancer-tls.test.ts']],
  'deploy/helm/README.md': [
    ['The Helm chart', 'sh', REHEARSED],
    ['The Helm chart', 'yaml', 'deploy/helm/chart.test.ts'],
    ['A new version', 'sh', REHEARSED],
    ['A new version', 'sh', REHEARSED],
    ['Secrets', 'sh', REHEARSED],
    ['Room types of your own', 'dockerfile', READ],
    ['Scaling', 'yaml', READ],
    ['Scaling', 'sh', REHEARSED],
    ['Watching', 'sh', REHEARSED],
  ],
  'docs/client.md': [['The client', 'ts', README]],
  'docs/loadtest.md': [
    ['Load tests', 'sh', REHEARSED],
    ['Against a service that runs', 'sh', README],
    ['Against a service that runs', 'sh', README],
    ['What decides', 'sh', REHEARSED],
  ],
  'docs/operations.md': [
    ['A first deployment', 'sh', RUNBOOKS],
    ['A first deployment', 'sh', RUNBOOKS],
    ['A first deployment', 'sh', RUNBOOKS],
    ['A first deployment', 'sh', RUNBOOKS],
    ['Traces', 'js', README],
    ['Procedures', 'sh', RUNBOOKS],
    ['Take a node out', 'sh', RUNBOOKS],
    ['Rotate a key', 'sh', RUNBOOKS],
    ['Rotate a key', 'sh', RUNBOOKS],
    ['Rotate a key', 'sh', RUNBOOKS],
    ['Change a secret', 'sh', RUNBOOKS],
    ['Back up and restore', 'sh', RUNBOOKS],
    ['Back up and restore', 'sh', RUNBOOKS],
    ['Runbooks', 'sh', RUNBOOKS],
    ['Players cannot get in', 'promql', RUNBOOKS],
    ['Players cannot get in', 'promql', RUNBOOKS],
    ['Sessions do not come back', 'promql', RUNBOOKS],
    ['A room is stuck', 'sh', RUNBOOKS],
    ['A room is stuck', 'sh', RUNBOOKS],
    ['A room was put in quarantine', 'sh', RUNBOOKS],
    ['A room was put in quarantine', 'sh', RUNBOOKS],
    ['Latency is up', 'promql', RUNBOOKS],
    ['Latency is up', 'promql', RUNBOOKS],
    ['Latency is up', 'sh', RUNBOOKS],
    ['Redis is gone', 'sh', RUNBOOKS],
    ['Redis is full', 'sh', RUNBOOKS],
    ['Control fails', 'sh', RUNBOOKS],
  ],
  'docs/protocol.md': [
    ['6. Checksum', '-', SHOWN],
    ['13. A small client', '-', SHOWN],
  ],
  'docs/redis.md': [
    ['The users', '-', 'shared/store/redis/access.test.ts'],
    ['The users', '-', 'shared/store/redis/access.test.ts'],
  ],
  'docs/reference.md': [
    ['Admin', 'sh', RUNBOOKS],
    ['Admin', 'json', RUNBOOKS],
  ],
  'docs/rooms.md': [['Writing rooms', 'ts', README]],
  'test/conformance/README.md': [['Conformance of the protocol', 'sh', REHEARSED]],
}

const known = Object.entries(LEDGER).flatMap(([page, rows]) => rows.map((row) => [page, ...row] as const))
const blocks = pages().flatMap((page) => blocksOf(page))
const place = ({ page, line, heading, language }: Block) =>
  `${page}:${line} (${language}, under "${heading}")`

/** The blocks about which this is done. */
const done = (what: string): Block[] =>
  blocks.filter((block) => {
    const same = blocks.filter(({ page }) => page === block.page)
    return LEDGER[block.page]?.[same.indexOf(block)]?.[2] === what
  })

/** Variables that a script sets are those of the program, of the page itself, or not ours to know. */
const assigned = (script: string): string[] =>
  [...script.matchAll(/^(?:export )?([A-Z][A-Z_]+)=/gm)].map(([, name]) => name!)

const PROGRAM = /^([A-Z_]+=\S+ )*(docker|helm|kubectl|sudo|systemctl|journalctl|npm|npx|roomful) [^|]*$/

/** What looks like a command, and is the name of one, or of something else. */
const NAMES = new Set(['helm template', 'helm rollback', 'roomful examples'])

describe('the pages', () => {
  it('have no block of code that no test knows', () => {
    const rows = known.map(([page, heading, language]) => `${page}: ${language}, under "${heading}"`)
    const there = blocks.map(({ page, heading, language }) => `${page}: ${language}, under "${heading}"`)
    const unknown = blocks.filter((_, i) => {
      const before = there.slice(0, i).filter((name) => name === there[i]).length
      return rows.filter((name) => name === there[i]).length <= before
    })
    expect(
      unknown.map(place),
      'Have a test run each of these as it stands (see the tests that LEDGER names), then add its row to LEDGER in test/docs-commands.test.ts',
    ).toEqual([])
    expect(
      there,
      'Rows of LEDGER in test/docs-commands.test.ts that no page has, or in another order',
    ).toEqual(pages().flatMap((page) => rows.filter((row) => row.startsWith(`${page}: `))))
  })

  it('are named by the tests that are said to run their blocks', () => {
    for (const [page, heading, language, how] of known) {
      if ([REHEARSED, READ, SHOWN].includes(how)) continue
      expect(existsSync(join(ROOT, how)), `${page}, "${heading}": there is no ${how}`).toBe(true)
      const test = readFileSync(join(ROOT, how), 'utf8')
      expect(test.includes(page.split('/').at(-1)!), `${how} reads ${page} (${language}, "${heading}")`).toBe(
        true,
      )
    }
  })

  it('tell nobody to type what would not be understood', async () => {
    for (const block of done(REHEARSED)) {
      const commands = await rehearse(block.code).catch((error: Error) => error)
      if (commands instanceof Error) throw new Error(`${place(block)} does not run: ${commands.message}`)
      for (const words of commands)
        expect(objectionTo(words), `${place(block)}: ${words.join(' ')}`).toBeUndefined()
    }
  })

  it('set variables that there are', () => {
    for (const block of blocks.filter(({ language }) => language === 'sh'))
      for (const name of assigned(block.code))
        if (!textOf(block.page).includes(`$${name}`)) expect(variable(name), place(block)).toBeUndefined()
  })

  it('have commands in their text that would be understood', async () => {
    const found = pages().flatMap((page) =>
      inlineCode(page)
        .filter((code) => PROGRAM.test(code) && !NAMES.has(code))
        .map((code) => ({ page, code })),
    )
    expect(found.length).toBeGreaterThan(50)
    const said = await rehearse(found.map(({ code }) => `${code}\n`).join(''))
    expect(said).toHaveLength(found.length)
    const wrong = said.map((words, i) => ({ ...found[i]!, wrong: objectionTo(words) }))
    expect(wrong.filter((each) => each.wrong !== undefined)).toEqual([])
    for (const { page, code } of found)
      for (const name of assigned(code)) expect(variable(name), `${page}: ${code}`).toBeUndefined()
  })

  it('show Dockerfiles that a linter understands, and YAML', () => {
    for (const block of done(READ)) {
      if (block.language === 'dockerfile') {
        expect(validate(block.code), place(block)).toEqual([])
        for (const [, name] of block.code.matchAll(/^ENV ([A-Z_]+)=/gm))
          expect(variable(name!)).toBeUndefined()
      } else expect(parse(block.code), place(block)).toEqual(expect.any(Object))
    }
  })
})
