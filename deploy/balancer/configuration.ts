/** Addresses of the servers behind a load balancer and of its listeners, for `haproxy.cfg` and `nginx.conf` in this folder. */
export interface Places {
  /** Addresses with ports, such as `127.0.0.1:4000`, which replace `:4000`, `:3000` and `:8404`. */
  readonly websocket: string
  readonly control: string
  readonly operations: string
  readonly nodes: readonly { readonly address: string; readonly healthPort: number }[]
  readonly controls: readonly { readonly address: string }[]
  /** TLS listeners, which replace `:4443` and `:3443`. Required with `tls`. */
  readonly tls?: { readonly websocket: string; readonly control: string }
}

/** Returns `haproxy.cfg` for these addresses. Only addresses, ports and the number of servers change. */
export function haproxyAt(text: string, places: Places): string {
  let placed = redirectedTo(text, places)
  for (const [port, address] of listeners(places))
    placed = replaced(placed, `\n    bind :${port}`, `\n    bind ${address}`)
  placed = repeated(placed, /^server node-/, places.nodes, (line, at, { address, healthPort }) =>
    line.replace(/node-1 node-1:4000 port 9100/, `node-${at} ${address} port ${healthPort}`),
  )
  placed = repeated(placed, /^server unchecked-node-/, places.nodes, (line, at, { address }) =>
    line.replace(/node-1 node-1:4000/, `node-${at} ${address}`),
  )
  placed = repeated(placed, /^server workers-of-node-/, places.nodes, (line, at, { address }) =>
    line.replace(/node-1 node-1:\+4000/, `node-${at} ${address.replace(/:(?=\d+$)/, ':+')}`),
  )
  for (const controls of [/^server control-/, /^server unchecked-control-/])
    placed = repeated(placed, controls, places.controls, (line, at, { address }) =>
      line.replace(/control-1 control-1:3000/, `control-${at} ${address}`),
    )
  return placed
}

/** Returns `nginx.conf` for these addresses. */
export function nginxAt(text: string, places: Places): string {
  let placed = redirectedTo(text, places)
  for (const [port, address] of listeners(places))
    placed = replaced(placed, `\n        listen ${port}`, `\n        listen ${address}`)
  placed = repeated(placed, /^upstream node-/, places.nodes, (line, at, { address }) =>
    line.replace('node-1:4000', address).replace('node-1', `node-${at}`),
  )
  for (const nodes of [/^server node-.* max_fails=1/, /^server node-.* backup/])
    placed = repeated(placed, nodes, places.nodes, (line, _, { address }) =>
      line.replace('node-1:4000', address),
    )
  for (const controls of [/^server control-.* max_fails=1/, /^server control-.* backup/])
    placed = repeated(placed, controls, places.controls, (line, _, { address }) =>
      line.replace('control-1:3000', address),
    )
  return placed
}

const listeners = ({ websocket, control, operations, tls }: Places): [number, string][] => [
  [4000, websocket],
  [3000, control],
  [8404, operations],
  ...(tls
    ? ([
        [4443, tls.websocket],
        [3443, tls.control],
      ] as [number, string][])
    : []),
]

/** Redirects unencrypted clients to the TLS port. */
const redirectedTo = (text: string, { tls }: Places): string =>
  tls ? replaced(text, /(?<=https:\/\/\S+:)4443/, tls.websocket.split(':')[1]!) : text

function replaced(text: string, what: string | RegExp, by: string): string {
  if (text.split(what).length !== 2) throw new Error(`"${what}" stands not once in the configuration`)
  return text.replace(what, () => by)
}

/** Replaces all lines that match `kind` (without their indentation) with a copy of the first one for each address. */
function repeated<Place>(
  text: string,
  kind: RegExp,
  places: readonly Place[],
  lineOf: (first: string, at: number, place: Place) => string,
): string {
  const lines = text.split('\n')
  const isOne = (line: string): boolean => kind.test(line.trim())
  const first = lines.find(isOne)
  if (first === undefined) throw new Error(`the configuration has no line that matches ${kind}`)
  const at = lines.indexOf(first)
  const made = places.map((place, index) => lineOf(first, index + 1, place))
  return [...lines.slice(0, at), ...made, ...lines.slice(at).filter((line) => !isOne(line))].join('\n')
}
