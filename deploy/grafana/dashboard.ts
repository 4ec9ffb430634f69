import { DATASOURCE, heightOf, type Panel, panelJson, type Row, widthOf } from './panel.ts'
import { CONTROL_ROW } from './rows/control.ts'
import { OVERVIEW } from './rows/overview.ts'
import { ERRORS, GETTING_IN, MESSAGES } from './rows/players.ts'
import { PROCESSES } from './rows/processes.ts'
import { BOUNDS, COMING_BACK, OWNERSHIP, SLOW_READERS } from './rows/rooms.ts'
import { STORE } from './rows/store.ts'

/** Everything there is to see, from what players notice down to what may be the cause. */
const ROWS: readonly Row[] = [
  OVERVIEW,
  GETTING_IN,
  MESSAGES,
  ERRORS,
  COMING_BACK,
  OWNERSHIP,
  SLOW_READERS,
  BOUNDS,
  STORE,
  PROCESSES,
  CONTROL_ROW,
]

const COLUMNS = 24

/** The dashboard as Grafana stores it: `deploy/grafana/dashboards/roomful.json`. */
export function dashboard(): object {
  return {
    uid: 'roomful',
    title: 'roomful',
    description: 'A roomful deployment: what players notice, what rooms do, and what it costs.',
    tags: ['roomful'],
    schemaVersion: 41,
    version: 1,
    editable: true,
    graphTooltip: 1,
    refresh: '10s',
    time: { from: 'now-1h', to: 'now' },
    timezone: '',
    fiscalYearStartMonth: 0,
    links: [],
    templating: { list: VARIABLES },
    annotations: { list: ANNOTATIONS },
    panels: layOut(ROWS),
  }
}

/** Puts rows of panels below each other; a line of panels ends where the next would not fit. */
function layOut(rows: readonly Row[]): object[] {
  const placed: object[] = []
  let y = 0
  for (const { title, panels } of rows) {
    placed.push({
      id: placed.length + 1,
      type: 'row',
      title,
      collapsed: false,
      gridPos: { x: 0, y, w: COLUMNS, h: 1 },
      panels: [],
    })
    y += 1
    for (const line of linesOf(panels)) {
      let x = 0
      for (const panel of line) {
        const [w, h] = [widthOf(panel), heightOf(panel)]
        placed.push(panelJson(panel, placed.length + 1, { x, y, w, h }))
        x += w
      }
      y += Math.max(...line.map(heightOf))
    }
  }
  return placed
}

function linesOf(panels: readonly Panel[]): Panel[][] {
  const lines: Panel[][] = [[]]
  let left = COLUMNS
  for (const panel of panels) {
    const width = widthOf(panel)
    if (width > left) {
      lines.push([])
      left = COLUMNS
    }
    lines.at(-1)!.push(panel)
    left -= width
  }
  return lines
}

/** A choice among the values that a label has; all at first, which is `all` where given: a regular expression. */
const choice = (name: string, label: string, query: string, all?: string): object => ({
  name,
  label,
  type: 'query',
  datasource: DATASOURCE,
  definition: query,
  query: { query, refId: name },
  refresh: 2,
  sort: 1,
  multi: true,
  includeAll: true,
  ...(all !== undefined && { allValue: all }),
  current: { text: ['All'], value: ['$__all'] },
  hide: 0,
})

const VARIABLES: readonly object[] = [
  {
    name: 'datasource',
    label: 'Data source',
    type: 'datasource',
    query: 'prometheus',
    hide: 0,
    refresh: 1,
  },
  // Outside of Kubernetes there is no such label, and all of none is everything.
  choice('namespace', 'Namespace', 'label_values(service_node_info, namespace)', '.*'),
  choice('node', 'Nodes', 'label_values(service_node_info{namespace=~"$namespace"}, instance)'),
  choice('control', 'Control', 'label_values(service_control_info{namespace=~"$namespace"}, instance)'),
]

/** Marks in every graph wherever an expression has a value. */
const mark = (name: string, iconColor: string, expr: string, title: string, text: string): object => ({
  name,
  datasource: DATASOURCE,
  enable: true,
  iconColor,
  target: { refId: 'Anno', expr, interval: '10s' },
  titleFormat: title,
  textFormat: text,
})

/** What was wrong, and who went away, when a line moved. */
const ANNOTATIONS: readonly object[] = [
  mark(
    'Alerts',
    'red',
    'ALERTS{alertstate="firing",alertname=~"Roomful.+"}',
    '{{alertname}}',
    '{{instance}} {{severity}}',
  ),
  mark('Drains', 'blue', 'service_draining == 1', '{{instance}} drains', ''),
]
