import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { JoinRequest, RoomAddress } from '../traffic.ts'
import type { RoomDefinition } from './definition.ts'
import type { RoomEnvironment } from './environment.ts'
import { parseOptions } from './failures.ts'
import type { LiveTree } from './live-tree.ts'
import { createState, treeOf } from './state.ts'

/** The room logic made no room; code and text are for the client that asked for it. */
export class CannotCreate extends Error {
  override readonly name = 'CannotCreate'
  readonly code: ErrorCode

  constructor({ code, message }: { readonly code: ErrorCode; readonly message: string }) {
    super(message)
    this.code = code
  }
}

/** `load` brought nothing, not even that there is nothing: the room may be made at another time. The text says why. */
export class CannotLoad extends Error {
  override readonly name = 'CannotLoad'
}

/** The state that a room which is nowhere begins with: what `load` brings, or else what `create` makes. */
export class FirstState {
  readonly #environment: RoomEnvironment
  readonly #address: RoomAddress
  readonly #definition: RoomDefinition

  constructor(environment: RoomEnvironment, address: RoomAddress, definition: RoomDefinition) {
    this.#environment = environment
    this.#address = address
    this.#definition = definition
  }

  /**
   * Of a room that `join` makes under `epoch`: under the claim, validator and all, so that what does not return is known of by whichever node
   * claims the room next. Rejects with CannotCreate, or with CannotLoad after at most `loadMs`.
   */
  async of(join: JoinRequest, epoch: number): Promise<LiveTree> {
    const { failures, limits } = this.#environment
    const definition = this.#definition
    const { load, type } = definition
    const options = this.#during('options', join, epoch, () => parseOptions(definition, join.options))
    if (!options.ok && options.cause === undefined)
      throw new CannotCreate({ code: 'invalid_options', message: options.message })
    if (!options.ok)
      throw new CannotCreate(failures.explain(`the validator of the options of ${type}`, options.cause))
    const loaded = load && (await this.#load(load, join, epoch, options.value))
    if (loaded) return loaded
    try {
      return this.#during('create', join, epoch, () =>
        createState(definition, options.value, limits.stateBytes),
      )
    } catch (error) {
      throw new CannotCreate(failures.explain(`create of ${type}`, error))
    }
  }

  async #load(
    load: NonNullable<RoomDefinition['load']>,
    join: JoinRequest,
    epoch: number,
    options: unknown,
  ): Promise<LiveTree | undefined> {
    const { clock, failures, limits, metrics, turns } = this.#environment
    const { key, projectId } = this.#address
    const { type } = this.#definition
    const count = (outcome: 'loaded' | 'none' | 'failed' | 'timed_out') =>
      metrics.roomLoads.inc({ room_type: type, outcome })
    let cancel: (() => void) | undefined
    const late = new Promise<never>((_, reject) => {
      cancel = clock.schedule(limits.loadMs, () =>
        reject(new LoadTimeout(`load of ${type} did not end within ${limits.loadMs / 1000} seconds`)),
      )
    })
    try {
      const loading = Promise.resolve(
        this.#during('load', join, epoch, () => load(key, options, { projectId })),
      )
      turns.awaits(type, 1)
      const ended = () => turns.awaits(type, -1)
      loading.then(ended, ended)
      const state = await Promise.race([loading, late])
      const tree =
        state === undefined ? undefined : treeOf('load', state, this.#definition, limits.stateBytes)
      count(tree ? 'loaded' : 'none')
      return tree
    } catch (error) {
      const timedOut = error instanceof LoadTimeout
      count(timedOut ? 'timed_out' : 'failed')
      const { message } = failures.explain(`load of ${type}`, error)
      throw new CannotLoad(`its state could not be loaded: ${timedOut ? 'that takes too long' : message}`)
    } finally {
      cancel?.()
    }
  }

  #during<T>(hook: 'options' | 'create' | 'load', join: JoinRequest, epoch: number, run: () => T): T {
    const { turns } = this.#environment
    turns.begin({ name: this.#address.name, epoch }, hook, join.session_id, join.ref, '')
    try {
      return run()
    } finally {
      turns.end()
    }
  }
}

class LoadTimeout extends Error {
  override readonly name = 'LoadTimeout'
}
