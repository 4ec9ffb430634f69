import { existsSync, readFileSync } from 'node:fs'

/** The build of a process. */
interface Build {
  /** Version in package.json. */
  readonly version: string
  /** Short hash of the commit, with `-dirty` for uncommitted changes. `unknown`: it runs from source. */
  readonly commit: string
}

/** Returns the version of roomful. It works from the sources and from the compiled package. */
export const packageVersion = (): string =>
  readJson<{ version: string }>(['../package.json', '../../package.json'])!.version

/** Returns the build of this process. `npm run build` writes `build.json` next to the compiled folders. */
export const currentBuild = (): Build => ({
  version: packageVersion(),
  commit: readJson<{ commit: string }>(['../build.json'])?.commit ?? 'unknown',
})

/** Returns the content of the first of these files that exists. */
function readJson<T>(paths: readonly string[]): T | undefined {
  const place = paths.map((path) => new URL(path, import.meta.url)).find((each) => existsSync(each))
  return place && (JSON.parse(readFileSync(place, 'utf8')) as T)
}
