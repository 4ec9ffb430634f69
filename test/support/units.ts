import { readFile } from 'node:fs/promises'

/** Returns the values of each setting of a unit in `deploy/systemd`, in order. */
export async function unitSettings(unit: string): Promise<(name: string) => string[]> {
  const text = await readFile(new URL(`../../deploy/systemd/${unit}`, import.meta.url), 'utf8')
  const lines = text.split('\n').filter((line) => /^[A-Za-z]+=/.test(line))
  return (name) =>
    lines.filter((line) => line.startsWith(`${name}=`)).map((line) => line.slice(name.length + 1))
}

/** Returns the credentials of a unit: the path of each secret by its name. */
export const unitCredentials = (of: (name: string) => string[]): Map<string, string> =>
  new Map(of('LoadCredential').map((line) => line.split(':') as [string, string]))

/** Returns the environment that a unit sets. `specifiers`: values of `%d`, `%H` and `%i`. */
export const unitEnvironment = (
  of: (name: string) => string[],
  specifiers: { readonly d: string; readonly H: string; readonly i: string },
): Record<string, string> =>
  environmentIn(
    of('Environment')
      .flatMap((line) => line.split(' '))
      .join('\n')
      .replaceAll(/%([dHi])/g, (_, letter: keyof typeof specifiers) => specifiers[letter]),
  )

/** Returns lines such as `NAME=value` as an environment. */
export const environmentIn = (text: string): Record<string, string> =>
  Object.fromEntries([...text.matchAll(/^([A-Z_]+)=(.*)$/gm)].map(([, name, value]) => [name!, value!]))
