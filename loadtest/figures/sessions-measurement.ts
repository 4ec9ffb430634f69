import { withCluster } from './cluster.ts'
import type { Fact } from './figure.ts'
import { idleSessions, type PlayingSessions, playingSessions } from './many-sessions.ts'
import type { Measurement } from './measurement.ts'

const IDLE_SESSIONS = 5000
const MEMBERS = 10
const REST_SECONDS = 20
const RATE = 5
const PLAY_SECONDS = 15
const PLAYING = [200, 400, 800]
/** What a core can be filled to without players noticing. */
const FULL = 0.7
const MIB = 1024 * 1024

/** What sessions cost the node they are at: how many fit. */
export const sessions: Measurement = {
  name: 'sessions',
  most_ms_per_run: 300_000,
  run: ({ progress }) =>
    withCluster({ nodes: 1, env: { SESSION_RESUME_TTL: '1' } }, async (cluster) => {
      progress(`${IDLE_SESSIONS} idle sessions`)
      const idle = await idleSessions(cluster, {
        sessions: IDLE_SESSIONS,
        members: MEMBERS,
        rest_seconds: REST_SECONDS,
      })
      const playing = []
      for (const count of PLAYING) {
        progress(`${count} sessions that play`)
        playing.push(
          await playingSessions(cluster, {
            sessions: count,
            members: MEMBERS,
            rate: RATE,
            seconds: PLAY_SECONDS,
          }),
        )
      }
      return {
        name: 'sessions',
        title: 'Sessions of one node',
        method: `One node, journal rooms of ${MEMBERS} members each, sync.rate 20, MessagePack. Idle: ${IDLE_SESSIONS.toLocaleString('en')} members who send nothing, for ${REST_SECONDS} s; memory is that of the node after a garbage collection, less what it was before. Playing: each member sends ${RATE} moves a second, spread evenly, for ${PLAY_SECONDS} s; CPU is of one core. "Sessions a core carries" is what the node's CPU time comes to at ${FULL * 100} % of a core.`,
        figures: [],
        facts: [
          { what: 'joins', value: idle.per_second, unit: '/s' },
          {
            what: '10,000 idle sessions: memory in use',
            value: (10_000 * idle.used_bytes) / MIB,
            unit: 'MiB',
          },
          { what: '10,000 idle sessions: RSS', value: (10_000 * idle.rss_bytes) / MIB, unit: 'MiB' },
          {
            what: '10,000 idle sessions: CPU',
            value: (100 * nodeCpu(idle.rest.nodes_cpu) * 10_000) / idle.sessions,
            unit: '%',
          },
          ...playing.flatMap(playingFacts),
        ],
      }
    }),
}

const nodeCpu = (shares: readonly number[]): number => shares[0] ?? 0

function playingFacts(found: PlayingSessions): Fact[] {
  const { sessions: count, rooms, during } = found
  const cpu = nodeCpu(during.nodes_cpu)
  const of = (what: string): string => `${count} sessions: ${what}`
  return [
    { what: of('updates received'), value: found.updates_per_second, unit: '/s' },
    { what: of('bytes an update'), value: found.bytes_per_update, unit: 'B' },
    { what: of('CPU of the node'), value: 100 * cpu, unit: '%' },
    { what: of('CPU of Redis'), value: 100 * during.redis_cpu, unit: '%' },
    { what: of('calls of Redis a room'), value: (during.commands.get('evalsha') ?? 0) / rooms, unit: '/s' },
    { what: of('sessions a core carries'), value: (FULL * count) / cpu, unit: '' },
  ]
}
