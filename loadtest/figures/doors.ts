import { WebSocket } from 'ws'
import type { WebSocketConstructor } from '../../client/index.ts'

/** An address of a node. */
export interface Door {
  readonly ws_url: string
}

/** Where clients find their nodes, as a load balancer that checks their health would send them. */
export interface Doors {
  readonly slots: readonly Door[]
  /** Whether the balancer sends clients there. */
  isOpen(door: Door): boolean
}

/** Gives the address for one connection after the other: `home` while that is open, else the next open one in turn, `home` again when none is. */
export function addressesBy({ slots, isOpen }: Doors, home: Door): () => string {
  let turn = slots.indexOf(home)
  return () => {
    if (isOpen(home)) return home.ws_url
    for (let tried = 0; tried < slots.length; tried++) {
      turn = (turn + 1) % slots.length
      const door = slots[turn]
      if (door && isOpen(door)) return door.ws_url
    }
    return home.ws_url
  }
}

/** The websocket of a client that is meant for `home`. */
export function socketBy(doors: Doors, home: Door): WebSocketConstructor {
  const next = addressesBy(doors, home)
  return class extends WebSocket {
    constructor(_url: string, protocols: string[]) {
      super(next(), protocols)
    }
  }
}
