import { table } from './protocol-tables.ts'

/** Figures of docs/scaling.md: measurements with 1 to 8 nodes, and the requirements that follow for any number of players. */

/** One row of `npm run compare -- --scenarios scale-8-direct`: 2,000 clients that should receive 40,000 updates a second. */
interface Measured {
  readonly nodes: number
  /** CPU microseconds per update, of all nodes together, and of Redis. */
  readonly cpu: number
  readonly redis: number
  /** Redis commands per second. */
  readonly commands: number
  /** Utilization in percent. */
  readonly crossing: number
  readonly delivered: number
  /** Round trips in milliseconds. */
  readonly p50: number
  readonly p99: number
}

const ALONE: Measured = {
  nodes: 1,
  cpu: 12.2,
  redis: 0.07,
  commands: 36,
  crossing: 0,
  delivered: 100,
  p50: 31,
  p99: 57,
}
const BUS: readonly Measured[] = [
  ALONE,
  { nodes: 2, cpu: 13.2, redis: 0.31, commands: 667, crossing: 49, delivered: 100, p50: 32, p99: 58 },
  { nodes: 4, cpu: 17.6, redis: 0.73, commands: 3_337, crossing: 73, delivered: 100, p50: 27, p99: 53 },
  { nodes: 8, cpu: 24.3, redis: 1, commands: 8_356, crossing: 84, delivered: 99, p50: 40, p99: 211 },
]
const DIRECT: readonly Measured[] = [
  ALONE,
  { nodes: 2, cpu: 12.5, redis: 0.12, commands: 354, crossing: 0, delivered: 100, p50: 32, p99: 53 },
  { nodes: 4, cpu: 15.6, redis: 0.35, commands: 554, crossing: 2.8, delivered: 100, p50: 40, p99: 59 },
  { nodes: 8, cpu: 14.9, redis: 0.38, commands: 1_325, crossing: 1.3, delivered: 100, p50: 34, p99: 55 },
]

export function measuredTable(): string {
  const row = (way: string, one: Measured) => [
    way,
    String(one.nodes),
    String(one.cpu),
    `× ${(one.cpu / ALONE.cpu).toFixed(2)}`,
    `${one.crossing} %`,
    `${one.delivered} %`,
    `${one.p50} / ${one.p99}`,
    String(one.redis),
    whole(one.commands),
  ]
  return table(
    [
      '',
      'nodes',
      'CPU-µs an update',
      '',
      'over the bus',
      'delivered',
      'p50 / p99 ms',
      'Redis CPU-µs',
      'Redis commands/s',
    ],
    [
      row('', ALONE),
      ...BUS.slice(1).map((one) => row('by the bus', one)),
      ...DIRECT.slice(1).map((one) => row('direct', one)),
    ],
  )
}

/** The game of the calculation: rooms of 20 players, 20 updates and 5 inputs a second for each player. */
const ROOM = 20
const RATE = 20
const INPUTS = 5
const UPDATE_BYTES = 62
/** Two nodes with direct routing, each core used to two thirds. */
const PLAYERS_A_NODE = 2_000
/** Maximum number of nodes in one cluster. With more, one Redis would get too many requests. */
const NODES_A_CLUSTER = 200
/** Moments per second at which a node sends collected messages to another. */
const GATHERED_A_SECOND = 120
/** Interval in seconds between two writes of a session's record. */
const REFRESH_SECONDS = 60

/** Returns the requirements of this number of players in one cluster of any size. */
function sizeOf(players: number) {
  const nodes = Math.max(2, Math.ceil(players / PLAYERS_A_NODE))
  const rooms = Math.ceil(players / ROOM)
  /** Returns the number of nodes with members of a room if these are spread randomly. */
  const edges = nodes * (1 - (1 - 1 / nodes) ** ROOM)
  const crossing = rooms * RATE * (edges - 1) + players * INPUTS * (1 - 1 / nodes)
  return {
    players,
    nodes,
    rooms,
    edges,
    updates: players * RATE,
    bytes: players * RATE * UPDATE_BYTES,
    clusters: Math.ceil(nodes / NODES_A_CLUSTER),
    /** Redis commands per second: checks between nodes, sessions, messages between nodes if members are spread randomly, and journals. */
    asking: 2 * nodes ** 2 + 17 * nodes,
    sessions: players / REFRESH_SECONDS,
    bus: 2 * Math.min(crossing, GATHERED_A_SECOND * nodes * (nodes - 1)),
    journals: rooms * RATE,
  }
}

const PLAYERS = [1e3, 1e4, 1e5, 1e6, 1e7]

export const playersTable = (): string =>
  table(
    [
      'players',
      'rooms',
      'nodes (cores)',
      'updates/s',
      'bytes/s out',
      'edges per room, by chance',
      'clusters',
      'node checks/s',
      'sessions written/s',
      'bus/s, by chance',
      'journal commits/s',
    ],
    PLAYERS.map((players) => {
      const all = sizeOf(players)
      const each = sizeOf(players / all.clusters)
      return [
        short(players),
        short(all.rooms),
        whole(all.nodes),
        short(all.updates),
        `${short(all.bytes)}B`,
        each.edges.toFixed(1),
        String(all.clusters),
        ...[each.asking, each.sessions, each.bus, each.journals].map((rate) => short(rate)),
      ]
    }),
  )

const whole = (value: number): string => Math.round(value).toLocaleString('en')

/** Returns two digits and a letter. */
function short(value: number): string {
  const [unit, letter] =
    value >= 1e9 ? [1e9, 'G'] : value >= 1e6 ? [1e6, 'M'] : value >= 1e3 ? [1e3, 'k'] : [1, '']
  const scaled = value / unit
  return `${scaled >= 10 ? Math.round(scaled) : Number(scaled.toPrecision(2))}${letter ? ` ${letter}` : ''}`
}

/** A line of a drawing, in data coordinates. */
interface Line {
  readonly name: string
  readonly colour: string
  readonly points: readonly (readonly [x: number, y: number])[]
  readonly dashed?: true
}

interface Panel {
  readonly title: string
  readonly x: { readonly title: string; readonly ticks: readonly number[] }
  readonly y: { readonly ticks: readonly number[]; readonly log: boolean }
  readonly lines: readonly Line[]
}

/** Sizes in the drawing. */
const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [430, 320, 52, 96, 48, 44]

/** Returns a panel as SVG with a logarithmic x axis. Names are at the ends of the lines, moved apart if they would overlap. */
function panel({ title, x, y, lines }: Panel, left: number): string {
  const scale = (value: number, [from, to]: readonly [number, number], log: boolean): number => {
    const of = log ? Math.log : (v: number) => v
    return (of(value) - of(from)) / (of(to) - of(from))
  }
  const ends = (ticks: readonly number[]): readonly [number, number] => [ticks[0]!, ticks.at(-1)!]
  const across = (value: number): number =>
    left + LEFT + scale(value, ends(x.ticks), true) * (WIDTH - LEFT - RIGHT)
  const down = (value: number): number =>
    HEIGHT - BOTTOM - Math.max(0, scale(value, ends(y.ticks), y.log)) * (HEIGHT - TOP - BOTTOM)
  const grid = y.ticks.map(
    (tick) =>
      `<path class="grid" d="M${left + LEFT} ${down(tick).toFixed(1)}H${left + WIDTH - RIGHT}"/><text class="tick" x="${left + LEFT - 6}" y="${(down(tick) + 4).toFixed(1)}" text-anchor="end">${short(tick)}</text>`,
  )
  const marks = x.ticks.map(
    (tick) =>
      `<text class="tick" x="${across(tick).toFixed(1)}" y="${HEIGHT - BOTTOM + 18}" text-anchor="middle">${short(tick)}</text>`,
  )
  let above = Number.NEGATIVE_INFINITY
  const named = lines
    .map((line) => ({ line, at: down(line.points.at(-1)![1]) }))
    .sort((a, b) => a.at - b.at)
    .map(({ line, at }) => {
      above = Math.max(at, above + 15)
      const path = line.points.map(([px, py]) => `${across(px).toFixed(1)} ${down(py).toFixed(1)}`).join('L')
      const dots = line.dashed
        ? []
        : line.points.map(
            ([px, py]) => `<circle cx="${across(px).toFixed(1)}" cy="${down(py).toFixed(1)}" r="3"/>`,
          )
      return `<g class="${line.colour}"><path class="line"${line.dashed ? ' stroke-dasharray="4 4"' : ''} d="M${path}"/>${dots.join('')}<text x="${left + WIDTH - RIGHT + 8}" y="${(above + 4).toFixed(1)}">${line.name}</text></g>`
    })
  return [
    `<text class="title" x="${left + 8}" y="20">${title}</text>`,
    ...grid,
    ...marks,
    `<text class="tick" x="${left + LEFT + (WIDTH - LEFT - RIGHT) / 2}" y="${HEIGHT - 8}" text-anchor="middle">${x.title}</text>`,
    ...named,
  ].join('\n')
}

const cost = (name: string, colour: string, all: readonly Measured[]): Line => ({
  name,
  colour,
  points: all.map(({ nodes, cpu }) => [nodes, cpu]),
})
const curve = (name: string, colour: string, of: (size: ReturnType<typeof sizeOf>) => number): Line => ({
  name,
  colour,
  points: [1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6].map((players) => [players, of(sizeOf(players))]),
})

/** Returns docs/scaling.svg. */
export function scalingChart(): string {
  const panels = [
    panel(
      {
        title: 'CPU-µs an update, all nodes on one core',
        x: { title: 'nodes', ticks: [1, 2, 4, 8] },
        y: { ticks: [0, 10, 20, 30], log: false },
        lines: [cost('by the bus', 'a', BUS), cost('direct', 'b', DIRECT)],
      },
      0,
    ),
    panel(
      {
        title: 'Redis commands a second, one cluster',
        x: { title: 'players', ticks: [1e3, 1e4, 1e5, 1e6] },
        y: { ticks: [1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8], log: true },
        lines: [
          curve('by the bus', 'a', ({ bus }) => bus),
          curve('nodes', 'b', ({ asking }) => asking),
          curve('journals', 'c', ({ journals }) => journals),
          curve('sessions', 'd', ({ sessions }) => sessions),
          {
            name: 'one Redis',
            colour: 'e',
            dashed: true,
            points: [
              [1e3, 1e5],
              [1e6, 1e5],
            ],
          },
        ],
      },
      WIDTH,
    ),
  ]
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${2 * WIDTH} ${HEIGHT}" role="img" aria-label="What an update costs over 1 to 8 nodes, and what Redis runs for 1,000 to 1,000,000 players; the figures are in the tables of this page" font-family="system-ui, sans-serif" font-size="12">
<style>
.title { font-size: 14px; font-weight: 600; fill: #1f2328 } .tick { fill: #59636e } .grid { stroke: #d1d9e0 } .line { fill: none; stroke: currentColor; stroke-width: 2 } g { fill: currentColor }
.a { color: #bc4c00 } .b { color: #2f5bd8 } .c { color: #1a7f4b } .d { color: #8250df } .e { color: #b3261e }
@media (prefers-color-scheme: dark) { .title { fill: #f0f6fc } .tick { fill: #9198a1 } .grid { stroke: #3d444d } .a { color: #f0883e } .b { color: #79a1ff } .c { color: #4ac26b } .d { color: #c297ff } .e { color: #ff7b72 } }
</style>
${panels.join('\n')}
</svg>
`
}
