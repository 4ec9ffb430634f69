import type { Context } from 'hono'
import type { Span, Tracer } from '../shared/tracing/tracer.ts'
import type { ControlEnv } from './endpoint.ts'

/** The methods that HTTP and its extensions define; any other word a caller sends is no attribute. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT'])

/** The span of a request, part of the caller's trace if it named one. `route` is the pattern, `unmatched` for paths that are none. */
export function requestSpan(tracer: Tracer, { req }: Context<ControlEnv>, route: string): Span {
  const method = METHODS.has(req.method) ? req.method : '_OTHER'
  const matched = route !== 'unmatched'
  const name = method === '_OTHER' ? 'HTTP' : method
  return tracer.span(matched ? `${name} ${route}` : name, {
    kind: 'server',
    parent: { traceparent: req.header('traceparent'), tracestate: req.header('tracestate') },
    attributes: {
      'http.request.method': method,
      'http.route': matched ? route : undefined,
      // A path that is none of ours may have anything in it, such as a credential that was put at the wrong place.
      'url.path': matched ? req.path : undefined,
      'url.scheme': 'http',
    },
  })
}

/** The id of the trace that a span belongs to, for the log; undefined: it belongs to none. */
export const traceId = ({ traceparent }: Span): string | undefined => traceparent?.split('-')[1]
