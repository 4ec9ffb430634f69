import { existsSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import type { Plugin } from 'esbuild'

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
