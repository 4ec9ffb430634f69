import { countingRoom } from './load.ts'

export default countingRoom('load-none', 'none')
