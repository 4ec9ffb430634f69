import { existsSync } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import type { Plugin } from 'esbuild'
import { html } from 'hono/html'

/** Folder of the examples, as TypeScript or compiled. */
const EXAMPLES = new URL('../', import.meta.url)

/** Games that the backend serves, in the order of the front page. The notes are last, because they need an additional library. */
export const GAMES = ['arena', 'cards', 'tictactoe', 'counter', 'notes'] as const
export type Game = (typeof GAMES)[number]

/** Returns the room types that the players of a game may join: those of `room.ts` and `queue.ts` in its folder. */
export const roomTypesOf = (game: Game): string[] => (game === 'cards' ? [game, 'cards-ranked'] : [game])

/** Path of `name` next to the examples: the TypeScript file if it exists, else the compiled one. */
function module(name: string): string {
  const files = ['ts', 'tsx', 'js'].map((kind) => fileURLToPath(new URL(`${name}.${kind}`, EXAMPLES)))
  return files.find(existsSync) ?? files.at(-1)!
}

/** The entry of a game's browser script. */
export const pageModule = (game: Game): string => module(`${game}/page`)

/** The entry of the front page's browser script. */
export const frontModule = (): string => module('ui/front')

/** The source of a game's room, for people to read. */
export const roomSource = (game: Game): Promise<string> => readFile(module(`${game}/room`), 'utf8')

/** A file of the examples as text; `path` comes from code, never from a request. */
export const asset = (path: string): Promise<string> => readFile(new URL(path, EXAMPLES), 'utf8')

const CLIENT = new URL('../../client/', import.meta.url)

/** Resolves imports of `roomful` in pages: to the sources of this repository if they exist, else to the installed package. */
const roomfulClient: Plugin = {
  name: 'roomful-client',
  setup({ onResolve }) {
    const fileOf = (name: string) =>
      [`${name}.ts`, `${name}.js`].map((file) => fileURLToPath(new URL(file, CLIENT))).find(existsSync)
    if (fileOf('index'))
      onResolve({ filter: /^roomful\/(client|client\/motion|react)$/ }, ({ path }) => ({
        path: fileOf(path === 'roomful/client' ? 'index' : path.slice(path.lastIndexOf('/') + 1))!,
      }))
  },
}

interface Bundle {
  code: string
  inputs: string[]
  built_at: number
}

async function bundle(entry: string): Promise<Bundle> {
  const builtAt = Date.now()
  const { build } = await import('esbuild')
  const result = await build({
    entryPoints: [entry],
    bundle: true,
    write: false,
    metafile: true,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    sourcemap: 'inline',
    // Without this setting, the bundle has React's development build, which is four times as large.
    define: { 'process.env.NODE_ENV': '"production"' },
    plugins: [roomfulClient],
    logLevel: 'silent',
  })
  const output = result.outputFiles[0]
  if (!output) throw new Error(`esbuild made nothing of ${entry}`)
  return { code: output.text, inputs: Object.keys(result.metafile.inputs), built_at: builtAt }
}

async function isStale({ inputs, built_at: builtAt }: Bundle): Promise<boolean> {
  const times = await Promise.all(
    inputs.map((file) =>
      stat(file).then(
        (info) => info.mtimeMs,
        () => Infinity,
      ),
    ),
  )
  return times.some((changedAt) => changedAt > builtAt)
}

/** Browser scripts, built from TypeScript on first request and rebuilt when a source changes. */
export class Bundles {
  readonly #bundles = new Map<string, Promise<Bundle>>()

  /** Builds the page source `entry` (a file path) into one ES module. Rejects with esbuild's errors. */
  async script(entry: string): Promise<string> {
    const known = await this.#bundles.get(entry)?.catch(() => undefined)
    if (known && !(await isStale(known))) return known.code
    const fresh = bundle(entry)
    this.#bundles.set(entry, fresh)
    return (await fresh).code
  }
}

const TOKENS = new RegExp(
  [
    /(?<comment>\/\*[\s\S]*?\*\/|\/\/[^\n]*)/,
    /(?<string>'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`)/,
    /(?<number>\b\d[\d_]*(?:\.\d+)?\b)/,
    /(?<keyword>\b(?:import|from|export|default|const|let|type|interface|function|return|if|else|for|of|in|new|throw|delete|null|undefined|true|false|readonly)\b)/,
    /(?<name>\b[A-Za-z_$][\w$]*(?=\())/,
  ]
    .map((part) => part.source)
    .join('|'),
  'g',
)

type Html = ReturnType<typeof html>

/** TypeScript as lines of HTML, with spans for comments, strings, numbers, keywords and called names. */
function highlight(source: string): (string | Html)[][] {
  const lines: (string | Html)[][] = [[]]
  const add = (text: string, kind?: string): void => {
    for (const [i, part] of text.split('\n').entries()) {
      // Each line becomes a separate element, so a span must end with its line.
      if (i > 0) lines.push([])
      if (part !== '') lines.at(-1)!.push(kind ? html`<span class="t-${kind}">${part}</span>` : part)
    }
  }
  let end = 0
  for (const match of source.matchAll(TOKENS)) {
    add(source.slice(end, match.index))
    add(match[0], Object.entries(match.groups ?? {}).find(([, text]) => text !== undefined)?.[0])
    end = match.index + match[0].length
  }
  add(source.slice(end))
  return lines
}

/** Returns the page that shows a room's source line by line, with the common head. `source` is TypeScript. */
export function sourcePage(game: Game, source: string): Html {
  const lines = highlight(source.trimEnd())
  return html`<title>How ${game} works – roomful</title>
<link rel="stylesheet" href="/source.css">
<body class="reading">
  <header class="bar">
    <a class="brand" href="/" aria-label="All games"><img src="/favicon.svg" alt=""><span>roomful</span></a>
    <nav><a class="button primary" href="/${game}/">Play ${game}</a></nav>
  </header>
  <main>
    <h1>How ${game} works</h1>
    <p class="lead">
      These ${lines.length} lines are the rules of the game. They run on the server. roomful sends the changes of the state to every
      player, and continues the room if a server fails.
    </p>
    <figure class="source">
      <figcaption><span>${game}/room.ts</span><a href="/${game}/room.ts">plain text</a></figcaption>
      <ol tabindex="0" aria-label="${game}/room.ts">${lines.map((line) => html`<li><code>${line.length > 0 ? line : ' '}</code></li>`)}</ol>
    </figure>
  </main>
</body>
`
}
