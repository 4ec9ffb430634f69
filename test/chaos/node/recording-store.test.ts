import { closeSync, openSync, readFileSync, rmSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { newSessionId, quotaSets, SessionStore } from '../../../dataplane/gateway/session-record.ts'
import { memoryStore } from '../../../shared/store/memory/memory.ts'
import { FakeClock } from '../../kit/fake-clock.ts'
import { SeededRandom } from '../../kit/seeded-random.ts'
import { overriding, readStoreLines, StoreRecorder } from './recording-store.ts'

// The checker looks sessions up by the ids that clients tell. Under another name none was ever known to be written, and each that went
// with the store's data was a violation.
it('what a node writes down of a session is recorded under the id that its client has', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'roomful-recording-'))
  const path = join(folder, 'node.store')
  const file = openSync(path, 'w')
  try {
    const { records } = memoryStore({ clock: new FakeClock() })
    const recorder = new StoreRecorder('node_a', file)
    const store = new SessionStore(
      overriding(records, {
        async write(writes) {
          const stands = await records.write(writes)
          if (stands) recorder.wrote(writes)
          return stands
        },
      }),
    )
    const [first] = quotaSets('prj_a/token:b', 10)
    const sessionId = newSessionId(new SeededRandom(1), first!.set)
    const record = {
      session_id: sessionId,
      claims: { project_id: 'prj_a', issued_at: '', expires_at: '' },
      node_id: 'node_a',
      right: { token: 'abc', used: null, turn: 0, confirmed: true },
      seats: [],
      connected_at: 1,
      detached: false,
      place: { set: first!.set, came_at: 1 },
    }
    await store.create(record, 10, 1000)
    await store.save({ ...record, right: { ...record.right, turn: 3 } }, 1, 1000)
    expect(readStoreLines(readFileSync(path, 'utf8'), 0).sessions).toMatchObject([
      { session: sessionId, turn: 0 },
      { session: sessionId, turn: 3 },
    ])
  } finally {
    closeSync(file)
    rmSync(folder, { recursive: true })
  }
})
