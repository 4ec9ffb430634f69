import { mkdirSync, utimesSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { newFolder } from '../../test/support/run-folder.ts'
import { freePort, roomfulProgram } from './machine.ts'

describe('roomfulProgram', () => {
  let root = ''
  beforeEach(async () => {
    root = await newFolder()
    for (const folder of [
      'shared',
      'control',
      'dataplane',
      'client',
      'examples',
      'deploy/cli',
      'deploy/local',
      'deploy/playground',
    ])
      write(`${folder}/file.ts`, 100)
  })

  /** Creates a file with this modification time in seconds. */
  function write(name: string, at: number): void {
    const file = join(root, name)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, '')
    utimesSync(file, at, at)
  }

  it('returns the sources if there is no build', () => {
    expect(roomfulProgram(root)).toEqual({
      words: ['--import', expect.stringMatching(/^file:.*tsx/), join(root, 'deploy/cli/roomful.ts')],
      compiled: false,
    })
  })

  it('returns the build if it is newer than the sources', () => {
    write('dist/deploy/cli/roomful.js', 200)
    write('control/app.test.ts', 300)
    expect(roomfulProgram(root)).toEqual({
      words: [join(root, 'dist/deploy/cli/roomful.js')],
      compiled: true,
    })
  })

  it('returns the sources if one has changed since the build', () => {
    write('dist/deploy/cli/roomful.js', 200)
    write('dataplane/room/room.ts', 300)
    expect(roomfulProgram(root).compiled).toBe(false)
  })
})

const servers: Server[] = []
afterEach(() => {
  for (const server of servers.splice(0)) server.close()
})

const listen = (port: number): Promise<number> =>
  new Promise((resolve, reject) => {
    const server = createServer()
    servers.push(server)
    server.once('error', reject)
    server.listen(port, '127.0.0.1', () => resolve((server.address() as { port: number }).port))
  })

/** Returns these numbers in turn, repeatedly. */
function drawn(...numbers: readonly number[]): () => number {
  let at = 0
  return () => numbers[at++ % numbers.length]!
}

describe('freePort', () => {
  it('returns different ports to many callers with equal draws, although nothing listens on them', async () => {
    const ports = await Promise.all(Array.from({ length: 30 }, () => freePort(new SeededRandom(7))))
    expect(new Set(ports).size).toBe(30)
  })

  it('skips a port that another process listens on', async () => {
    await listen(10_000).catch(() => undefined)
    // A draw of 0 chooses the first port.
    const float = drawn(0, 0.3, 0.5, 0.7)
    expect(await freePort({ float, bytes: () => new Uint8Array() })).not.toBe(10_000)
  })

  it('returns no port that the system assigns to programs', async () => {
    const any = Math.min(...(await Promise.all(Array.from({ length: 50 }, () => listen(0)))))
    // Draws near 1 choose the last ports.
    const float = drawn(0.9999, 0.999, 0.998, 0.997)
    expect(await freePort({ float, bytes: () => new Uint8Array() })).toBeLessThan(any)
  })
})
