import { appendFile, mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { codeHash, roomsHash } from './loader.ts'

const FILES = {
  'duel/room.ts': `import { strike } from './rules.ts'\nimport words from '../words.json'\nexport default strike`,
  'duel/rules.ts': `import './deep'\nexport { strike } from "../shared/strike.js"`,
  'duel/deep/index.ts': '',
  'shared/strike.ts': 'export const strike = 1',
  'words.json': '[]',
  'duel/page.ts': '',
}
let folder: string
/** The hash of the room as it is now. */
const hash = () => codeHash(join(folder, 'duel/room.ts'))

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'roomful-code-'))
  for (const [name, content] of Object.entries(FILES)) {
    await mkdir(dirname(join(folder, name)), { recursive: true })
    await writeFile(join(folder, name), content)
  }
})

afterAll(() => rm(folder, { recursive: true }))

/** Whether the hash is another one after an edit of a file. */
async function changesWith(file: string): Promise<boolean> {
  const before = await hash()
  await appendFile(join(folder, file), ' ')
  return (await hash()) !== before
}

describe('codeHash', () => {
  it('is the same for the same files in another folder', async () => {
    const before = await hash()
    expect(before).toMatch(/^[0-9a-f]{12}$/)
    await rename(folder, `${folder}-moved`)
    folder += '-moved'
    expect(await hash()).toBe(before)
  })

  it.each(['duel/room.ts', 'duel/rules.ts', 'duel/deep/index.ts', 'shared/strike.ts', 'words.json'])(
    'differs when %s differs',
    async (file) => {
      expect(await changesWith(file)).toBe(true)
    },
  )

  it('does not depend on files that the room does not import', async () => {
    expect(await changesWith('duel/page.ts')).toBe(false)
  })
})

describe('roomsHash', () => {
  const duel = { type: 'duel', codeHash: 'aaa' }
  const chess = { type: 'chess', codeHash: 'bbb' }

  it('differs with the code of any type, and not with the order', () => {
    expect(roomsHash([duel, chess])).toBe(roomsHash([chess, duel]))
    expect(roomsHash([duel, { ...chess, codeHash: 'ccc' }])).not.toBe(roomsHash([duel, chess]))
  })

  it('is unknown for a room type that no file defines', () => {
    expect(roomsHash([duel, { type: 'chess' }])).toBe('unknown')
  })
})
