/**
 * `roomful/server`: what a backend does with its rooms and players, over the control API. It needs `fetch` only, and runs in Node, Deno, Bun
 * and workers.
 * @module roomful/server
 */
import { systemRandom } from '../shared/random.ts'
import { Backend } from './backend.ts'
import type { BackendOptions } from './control.ts'

export type {
  Backend,
  BackendRoom,
  Ban,
  BanList,
  BanOptions,
  CallArguments,
  CallOptions,
  DescribedState,
  ListedRoom,
  Page,
  ReservedSeat,
  RoomDescription,
  RoomList,
  RoomListQuery,
  RoomMember,
  TokenOptions,
} from './backend.ts'
export type { BackendOptions } from './control.ts'
export { type LocalErrorCode, RoomfulError, type RoomfulErrorCode } from './control.ts'
export { InvalidNotice, type Notice, type NoticeOf, verifyNotice } from './notices.ts'

/**
 * Returns the calls of a project. Nothing is sent yet. Each call repeats its request after network errors and the answers 429, 502, 503 and
 * 504, until `timeoutMs` have passed, and rejects with a RoomfulError. A room carries out each call once, however often it is sent.
 */
export const roomful = (options: BackendOptions): Backend =>
  new Backend(options, {
    fetch: (url, init) => fetch(url, init),
    random: systemRandom,
    monotonic: () => performance.now(),
    sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
  })
