import { CLOSE } from '../../shared/protocol/close-codes.ts'
import type { ClientMessage } from '../../shared/protocol/messages.ts'
import type { Span, Tracer } from '../../shared/tracing/tracer.ts'
import type { Connection } from './connection.ts'
import type { Admission } from './handshake.ts'
import type { Refusal } from './token-check.ts'

/**
 * The span of a handshake that was decided, from the accepted socket on. A new session goes on with the trace that its token was issued
 * in: the claims of a token count only when they were verified, so this is not known any earlier. A resume begins a trace of its own, so
 * that none is as long as a session, linked to the one before; so does a refusal.
 */
export function handshakeSpan(
  tracer: Tracer,
  connection: Connection,
  hello: Extract<ClientMessage, { t: 'hello' }>,
  answer: Admission | Refusal,
): Span {
  const resume = 'resume' in hello
  const begin = { kind: 'server', began_at: connection.opened_at } as const
  const attributes = {
    'network.protocol.name': 'websocket',
    'roomful.subprotocol': connection.codec.subprotocol,
    'roomful.resume': resume,
  }
  if ('close' in answer) {
    const span = tracer.span('handshake', { ...begin, attributes })
    const { code, retry } = CLOSE[answer.close]
    span.set({ 'roomful.close_code': code })
    // What the client may simply try again is the fault of the service.
    if (retry === 'resume') span.fail(answer.close)
    return span
  }
  const { session, trace_before } = answer
  return tracer.span('handshake', {
    ...begin,
    ...(resume ? { links: trace_before === undefined ? [] : [trace_before] } : { parent: session.claims }),
    attributes: {
      ...attributes,
      'roomful.session_id': session.session_id,
      'roomful.project_id': session.project_id,
    },
  })
}
