import type { TraceContext, Tracer } from '../../shared/tracing/tracer.ts'
import { nodeName } from '../node-id.ts'
import { roomId, roomNamed } from '../traffic.ts'
import type { ClaimResult } from './metrics.ts'

/** A claim that has ended. */
export interface EndedClaim {
  /** `project/type:key`. */
  readonly room: string
  readonly result: ClaimResult
  /** Of the room from now on, when it is this node's. */
  readonly epoch: number | undefined
  /** The dead node that the room was taken from. */
  readonly from: string | undefined
  /** On the monotonic clock. */
  readonly began_at: number
  /** The span of the join that was to make the room. */
  readonly made_for?: TraceContext | undefined
  /** The spans of whoever waits for the room. */
  readonly asked_by?: () => readonly string[]
}

/** Of those that waited for a room, so many are named. */
const MOST_LINKS = 32

/**
 * A claim as traces show it: a part of the join that it was made for, if there is one. A take-over is a trace of its own, since it happens
 * to everybody in the room, linked to those who waited for it.
 */
export function traceClaim(tracer: Tracer, claim: EndedClaim): void {
  const { result, made_for, asked_by, began_at } = claim
  if (made_for !== undefined) {
    const span = tracer.span('room.claim', { parent: made_for, began_at, attributes: attributesOf(claim) })
    if (result === 'unavailable') span.fail(result)
    span.end()
  }
  if (result === 'taken_over') {
    const links = [...new Set(asked_by?.())].slice(0, MOST_LINKS)
    tracer.span('room.take_over', { links, began_at, attributes: attributesOf(claim) }).end()
  }
}

function attributesOf({ room, result, epoch, from }: EndedClaim) {
  const address = roomNamed(room)
  return {
    'roomful.room_id': roomId(address),
    'roomful.room_type': address.room_type,
    'roomful.project_id': address.project_id,
    'roomful.result': result,
    'roomful.epoch': epoch,
    'roomful.from_node_id': from && nodeName(from),
  }
}
