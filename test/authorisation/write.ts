import { readFileSync, writeFileSync } from 'node:fs'
import { withMatrix } from './matrix.ts'

const file = new URL('../../docs/security.md', import.meta.url)
writeFileSync(file, withMatrix(readFileSync(file, 'utf8')))
process.stdout.write('wrote the authorisation matrix into docs/security.md\n')
