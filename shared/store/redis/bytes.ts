/** The bytes as Redis is to get them: a copy, because a command leaves only later in the turn and the caller may reuse its buffer. */
export const outgoing = (bytes: Uint8Array): Buffer => Buffer.from(bytes)

/** The bytes as Redis sent them: a copy, because a reply is a view of the chunk that the socket read. */
export const incoming = (bytes: Buffer): Uint8Array => new Uint8Array(bytes)
