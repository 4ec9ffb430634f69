import { openSync } from 'node:fs'
import { startNode } from '../../../dataplane/node.ts'
import { JournalFormat } from '../../../dataplane/rooms/journal.ts'
import { live } from '../../../deploy/cli/service.ts'
import { describeProblems, parseConfig } from '../../../shared/config.ts'
import { createLog } from '../../../shared/log.ts'
import { systemRandom } from '../../../shared/random.ts'
import { openStore } from '../../../shared/store/open.ts'
import type { Store } from '../../../shared/store/port.ts'
import { chaosRoom } from '../room-logic.ts'
import { JumpingClock, watchSlow, watchStalls } from './clocks.ts'
import { RecordingRooms, UnfencedRooms } from './recording-store.ts'

/*
 * One node of a chaos run: node main.ts <file of its store history> [--unfenced], with the environment of `roomful dataplane`. Its wall
 * clock jumps by `jumpMs` of each message from its parent.
 */

const [historyFile, ...flags] = process.argv.slice(2)
const parsed = parseConfig('dataplane', process.env)
if (!parsed.ok || historyFile === undefined) {
  process.stderr.write(
    `a chaos node cannot start:\n${parsed.ok ? 'the file is missing' : describeProblems(parsed)}\n`,
  )
  process.exit(2)
}
const { config } = parsed
const nodeId = config.nodeId ?? 'node'
const log = createLog(config, { node_id: nodeId })
const clock = new JumpingClock()
process.on('message', ({ jumpMs }: { jumpMs: number }) => clock.jump(jumpMs))
// The run is over, however it ended.
process.once('disconnect', () => process.exit(1))

const start = async () => {
  const store = await openStore({ ...config, log, clock, random: systemRandom })
  const rooms = flags.includes('--unfenced') ? new UnfencedRooms(store.rooms) : store.rooms
  const recorded = new RecordingRooms(rooms, new JournalFormat(), nodeId, openSync(historyFile, 'a'))
  watchStalls((stall) => recorded.stalled(stall))
  const node = await startNode({
    ...config,
    rooms: (['journal', 'snapshot', 'none'] as const).map((durability) =>
      chaosRoom(durability, (room, op) => recorded.began(room, op)),
    ),
    store: withRooms(store, recorded),
    log,
    clock,
  })
  return {
    addresses: { websocket: node.wsUrl, admin: node.adminUrl },
    ended: node.drained,
    close: () => node.close().finally(() => store.close()),
  }
}

/** The store with these room records; renewals of the lease are watched. */
const withRooms = (store: Store, rooms: RecordingRooms): Store => ({
  kind: store.kind,
  records: {
    read: (keys) => store.records.read(keys),
    write: async (writes) => {
      const stands = await store.records.write(writes)
      if (stands) rooms.wrote(writes)
      return stands
    },
    renewLease: (renewal) =>
      watchSlow(
        () => store.records.renewLease(renewal),
        (stall) => rooms.stalled(stall),
      ),
    page: (index, options) => store.records.page(index, options),
  },
  rooms,
  wakeups: store.wakeups,
  bus: store.bus,
  locks: store.locks,
  vitals: store.vitals,
  onReturn: (callback) => store.onReturn(callback),
  uptime: () => store.uptime(),
  time: () => store.time(),
  ping: () => store.ping(),
  close: () => store.close(),
})

live('chaos node', start, log, process)
