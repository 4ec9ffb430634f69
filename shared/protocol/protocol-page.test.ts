import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import type { Json } from '../json.ts'
import { MAX_DEPTH } from '../sync/check.ts'
import { Checksum } from '../sync/checksum.ts'
import {
  CLIENT_OPCODES,
  LEAVE_REASONS,
  LIMITS,
  RESYNC_REASONS,
  SERVER_OPCODES,
  SUBPROTOCOLS,
} from './messages.ts'
import { MAX_INTERNED, MAX_INTERNED_LENGTH } from './msgpack-room-encoder.ts'

const page = readFileSync(new URL('../../docs/protocol.md', import.meta.url), 'utf8')

/** The rows of the tables of a section, as cells without backticks. */
function rows(heading: string): string[][] {
  const section = page.split(/^##+ /m).find((part) => part.startsWith(heading)) ?? ''
  return section
    .split('\n')
    .filter((line) => line.startsWith('| ') && !line.startsWith('|---'))
    .slice(1)
    .map((line) => line.slice(2, -2).replaceAll('`', '').split(' | '))
}

describe('docs/protocol.md says what the code does', () => {
  test('opcodes', () => {
    const written = rows('4. MessagePack').map(([opcode, name]) => [name, Number(opcode)])
    const { 'state.resync': resync, ...others } = CLIENT_OPCODES
    const there = Object.entries({ ...others, 'state.resync (client)': resync, ...SERVER_OPCODES })
    expect(written).toEqual(there.sort(([, one], [, other]) => one - other))
  })

  test('subprotocols', () => {
    expect(rows('1. Connecting').map(([name]) => name)).toEqual(SUBPROTOCOLS)
  })

  test('checksums', () => {
    for (const [state, checksum] of rows('6. Checksum'))
      expect(new Checksum().of(JSON.parse(state!) as Json)).toBe(Number(checksum))
  })

  test('names that are numbers on the wire, and bounds', () => {
    const coded = (names: readonly string[]) => names.map((name, n) => `${n} ${name}`).join(', ')
    expect(page).toContain(coded(RESYNC_REASONS))
    expect(page).toContain(coded(LEAVE_REASONS))
    expect(page).toContain(`[${LIMITS.join(', ')}]`)
    expect(page).toContain(`at most ${MAX_DEPTH} levels`)
    expect(page).toContain(
      `at most ${MAX_INTERNED} keys, and no key of more than ${MAX_INTERNED_LENGTH} UTF-16`,
    )
  })
})
