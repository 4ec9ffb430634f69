import { existsSync, readFileSync } from 'node:fs'

/** The version of this roomful, as package.json has it; found from the sources as well as from the compiled package. */
export function packageVersion(): string {
  const places = ['../package.json', '../../package.json'].map((path) => new URL(path, import.meta.url))
  const place = places.find((each) => existsSync(each))
  if (!place) throw new Error(`there is no package.json above ${import.meta.url}`)
  const { version } = JSON.parse(readFileSync(place, 'utf8')) as { version: string }
  return version
}
