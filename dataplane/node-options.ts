import type { Clock } from '../shared/clock.ts'
import type { Defaults, LogConfig, StoreConfig } from '../shared/config.ts'
import type { Logger } from '../shared/log.ts'
import type { Random } from '../shared/random.ts'
import type { Store } from '../shared/store/port.ts'
import type { Tracer } from '../shared/tracing/tracer.ts'
import type { RoomDefinition } from './rooms/definition.ts'
import type { Turns } from './watchdog/turns.ts'

/** The part of the configuration that is about the node itself. */
type NodeConfig = Omit<
  Defaults<'dataplane'>,
  'rooms_dir' | 'turn_limit_ms' | keyof StoreConfig | keyof LogConfig | `otel_${string}`
>

/** How a node runs: its room types, and whatever of the configuration is not as the defaults say. */
export interface NodeOptions extends Partial<NodeConfig> {
  readonly rooms: readonly RoomDefinition[]
  /** Default: in memory, for this node alone. The store stays its owner's to close. */
  readonly store?: Store
  /** Default: JSON lines on standard output. */
  readonly log?: Logger
  readonly clock?: Clock
  readonly random?: Random
  /** Default: no traces. Its owner sends what it has gathered, after the node was closed. */
  readonly tracer?: Tracer
  /** Is told of every turn of every room; default: nobody is. */
  readonly turns?: Turns
  /** Tells players what failing room logic threw; for development. Default: they read that it failed, and the log has the error. */
  readonly reveal_failures?: boolean
}
