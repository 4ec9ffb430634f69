import { openSync, writeSync } from 'node:fs'
import { webhook } from '../../../dataplane/features/notices/notice.ts'
import { startNode } from '../../../dataplane/node.ts'
import { live } from '../../../deploy/cli/service.ts'
import type { Clock } from '../../../shared/clock.ts'
import { describeProblems, parseConfig } from '../../../shared/config.ts'
import { createLog } from '../../../shared/log.ts'
import { systemRandom } from '../../../shared/random.ts'
import { openStore } from '../../../shared/store/open.ts'
import { roomsOfRun } from '../rooms.ts'
import { JumpingClock, machineNow, watchSlow, watchStalls } from './clocks.ts'
import { overriding, type StoreLine, StoreRecorder, unfenced } from './recording-store.ts'

/*
 * One node of a chaos run: node main.ts <file of its store history> [--unfenced], with the environment of `roomful dataplane`. Each message
 * `{ jumpMs }` from the parent moves the wall clock.
 */

const [historyFile, ...flags] = process.argv.slice(2)
const parsed = parseConfig('dataplane', process.env)
if (!parsed.ok || historyFile === undefined) {
  process.stderr.write(
    `a chaos node cannot start:\n${parsed.ok ? 'the first argument, a file, is missing' : describeProblems(parsed)}\n`,
  )
  process.exit(2)
}
const { config } = parsed
const nodeId = config.nodeId ?? 'node'
const log = createLog(config, { node_id: nodeId })
const clock = new JumpingClock()
process.on('message', ({ jumpMs }: { jumpMs: number }) => clock.jump(jumpMs))
// The parent has ended.
process.once('disconnect', () => process.exit(1))

/** Timeout of a notice. Shorter than in production, because otherwise most of a run would be spent on this wait. */
const ATTEMPT_MS = 1500
const attempts: Clock = {
  now: () => clock.now(),
  monotonic: () => clock.monotonic(),
  schedule: (delayMs, callback) => clock.schedule(Math.min(delayMs, ATTEMPT_MS), callback),
}

const start = async () => {
  const store = await openStore({ ...config, log, clock, random: systemRandom })
  const rooms = flags.includes('--unfenced') ? unfenced(store.rooms) : store.rooms
  const file = openSync(historyFile, 'a')
  const write = (line: StoreLine) => void writeSync(file, `${JSON.stringify(line)}\n`)
  const recorder = new StoreRecorder(nodeId, machineNow, write, () => clock.readAt)
  watchStalls((stall) => recorder.stalled(stall))
  const recorded = recorder.store(overriding(store, { rooms }))
  const node = await startNode({
    ...config,
    rooms: roomsOfRun((room, op) => recorder.began(room, op)),
    store: overriding(recorded, {
      records: overriding(recorded.records, {
        renewLease: (renewal) =>
          watchSlow(
            () => recorded.records.renewLease(renewal),
            (stall) => recorder.stalled(stall),
          ),
      }),
    }),
    turns: recorder.calls,
    postNotice: webhook({
      url: config.notifyUrl ?? '',
      secrets: config.notifySecret ?? [],
      clock: attempts,
    }),
    log,
    clock,
  })
  return {
    addresses: { websocket: node.wsUrl, admin: node.adminUrl },
    ended: node.drained,
    close: () => node.close().finally(() => store.close()),
  }
}

live('chaos node', start, log, process)
