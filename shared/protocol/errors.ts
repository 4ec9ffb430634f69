/** A frame that is not a message of the protocol; the text says what was wrong and what would be right. Closes with 4000. */
export class ProtocolError extends Error {
  override readonly name = 'ProtocolError'
}

/**
 * A well-formed message whose fields are wrong; answered with `error` `invalid_message`, which echoes `ref` where one could be read.
 * `t` and `room_id` as well are what could be read.
 */
export class InvalidMessage extends Error {
  override readonly name = 'InvalidMessage'
  readonly t: string | undefined
  readonly ref: number | undefined
  readonly room_id: string | undefined

  constructor(message: string, about: { t?: string; ref?: number; roomId?: string } = {}) {
    super(message)
    this.t = about.t
    this.ref = about.ref
    this.room_id = about.roomId
  }
}
