import type { Socket } from 'node:net'
import type { ByteSink } from './outbox.ts'

/** What one write is to Node. It can be used again unless the write had to wait. */
interface WriteRequest {
  /** `status`: negative where it failed. */
  oncomplete?: (status: number) => void
  /** Kept alive until it is written. */
  held?: unknown
}

/** What Node's sockets write with. */
interface StreamBinding {
  readonly WriteWrap: new () => WriteRequest
  readonly streamBaseState: ArrayLike<number>
  /** Where that says whether some of the last write waits for the kernel. */
  readonly kLastWriteWasAsync: number
}

/** A TCP connection below its stream. Writes give 0 or the number of an error, and waiting bytes go out in the order of all writes, also of the stream's. */
interface WriteHandle {
  writeBuffer(request: WriteRequest, bytes: Uint8Array): number
  writev(request: WriteRequest, frames: readonly Uint8Array[], allAreBytes: true): number
  /** Bytes that the kernel has not taken. */
  readonly writeQueueSize: number
}

type SocketWithHandle = Socket & { readonly _handle?: WriteHandle | null }

/**
 * Writes to TCP sockets past their streams: of what it costs to give a room's frame to a member, the bookkeeping of the stream was more than all
 * that this project does. Node has no public way; where it has no such binding, or a socket is none of TCP, its stream is written to.
 */
export class SocketWrites {
  readonly #binding: StreamBinding | undefined = streamBinding()
  /** For all sockets: nearly every write is taken at once. */
  #request = this.#binding && new this.#binding.WriteWrap()

  /** Where to write what goes to this socket, as long as nothing else but whole frames is written to its stream. */
  to(socket: SocketWithHandle): ByteSink {
    const handle = socket._handle
    if (!this.#binding || !handle || handle.constructor.name !== 'TCP') return new StreamSink(socket)
    return new DirectSink(socket, handle, this)
  }

  /** One buffer, or several, as one write. Returns the request where some of it waits; a write that fails ends the connection. */
  write(
    socket: Socket,
    handle: WriteHandle,
    bytes: Uint8Array | readonly Uint8Array[],
  ): WriteRequest | undefined {
    const { streamBaseState, kLastWriteWasAsync, WriteWrap } = this.#binding!
    const request = this.#request!
    const failed =
      bytes instanceof Uint8Array ? handle.writeBuffer(request, bytes) : handle.writev(request, bytes, true)
    if (failed === 0 && streamBaseState[kLastWriteWasAsync] === 0) return undefined
    this.#request = new WriteWrap()
    if (failed !== 0) {
      socket.destroy()
      return undefined
    }
    request.held = bytes
    return request
  }
}

/** A TCP connection, past its stream. */
class DirectSink implements ByteSink {
  readonly #socket: Socket
  readonly #handle: WriteHandle
  readonly #writes: SocketWrites
  /** Writes of which some waits. */
  #waiting = 0
  #drained: (() => void)[] | undefined

  constructor(socket: Socket, handle: WriteHandle, writes: SocketWrites) {
    this.#socket = socket
    this.#handle = handle
    this.#writes = writes
  }

  write(bytes: Uint8Array): boolean {
    return this.#wrote(this.#writes.write(this.#socket, this.#handle, bytes))
  }

  writev(frames: readonly Uint8Array[]): boolean {
    return this.#wrote(this.#writes.write(this.#socket, this.#handle, frames))
  }

  onceDrained(drained: () => void): void {
    this.#drained ??= []
    this.#drained.push(drained)
  }

  get writableLength(): number {
    return this.#waiting > 0 ? this.#handle.writeQueueSize : 0
  }

  #wrote(request: WriteRequest | undefined): boolean {
    if (request) {
      this.#waiting++
      request.oncomplete = (status) => this.#completed(status)
    }
    return this.#waiting === 0
  }

  #completed(status: number): void {
    this.#waiting--
    if (status < 0) this.#socket.destroy()
    else if (this.#waiting === 0) for (const drained of this.#drained?.splice(0) ?? []) drained()
  }
}

/** A socket's stream. */
class StreamSink implements ByteSink {
  readonly #socket: Socket

  constructor(socket: Socket) {
    this.#socket = socket
  }

  write(bytes: Uint8Array): boolean {
    return this.#socket.write(bytes)
  }

  writev(frames: readonly Uint8Array[]): boolean {
    let taken = true
    this.#socket.cork()
    for (const frame of frames) taken = this.#socket.write(frame)
    this.#socket.uncork()
    return taken
  }

  onceDrained(drained: () => void): void {
    this.#socket.once('drain', drained)
  }

  get writableLength(): number {
    return this.#socket.writableLength
  }
}

/** Deprecated in Node's documentation, for what it is to others who use it; undefined where it is gone or looks different. */
function streamBinding(): StreamBinding | undefined {
  const { binding } = process as { readonly binding?: (name: string) => Partial<StreamBinding> }
  try {
    const found = binding?.('stream_wrap')
    if (!found?.WriteWrap || !found.streamBaseState || found.kLastWriteWasAsync === undefined)
      return undefined
    const { WriteWrap, streamBaseState, kLastWriteWasAsync } = found
    return { WriteWrap, streamBaseState, kLastWriteWasAsync }
  } catch {
    return undefined
  }
}
