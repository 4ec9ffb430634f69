import { existsSync, readFileSync } from 'node:fs'

/** The build of a process: which code it runs. */
export interface Build {
  /** As package.json has it. */
  readonly version: string
  /** Commit that it was built from, shortened, with `-dirty` for changes beside it; `unknown` when run from source. */
  readonly commit: string
}

/** Returns the version of this roomful; found from the sources as well as from the compiled package. */
export const packageVersion = (): string =>
  readJson<{ version: string }>(['../package.json', '../../package.json'])!.version

/** Returns the build of this process. `npm run build` writes `build.json` beside the compiled folders. */
export const currentBuild = (): Build => ({
  version: packageVersion(),
  commit: readJson<{ commit: string }>(['../build.json'])?.commit ?? 'unknown',
})

/** Returns the content of the first of these files that is there. */
function readJson<T>(paths: readonly string[]): T | undefined {
  const place = paths.map((path) => new URL(path, import.meta.url)).find((each) => existsSync(each))
  return place && (JSON.parse(readFileSync(place, 'utf8')) as T)
}
